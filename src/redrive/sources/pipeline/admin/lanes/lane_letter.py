"""
A letter of a lane: a document in the DLQ or the quarantine of a node.

Owns how one is read from a record, and how it becomes a stream for a node's input again, with its replays counted.
Pure: knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError

from redrive.core.trace_context import carrier_in
from redrive.sources.pipeline.protos.document_pb2 import DlqMessage, PipeStream

if TYPE_CHECKING:
    from redrive.core.trace_context import Carrier
    from redrive.sources.pipeline.graph.model import Node


class LaneLetter(NamedTuple):
    """A DlqMessage, and where it stands."""

    topic: str
    partition: int
    offset: int
    message: DlqMessage
    trace: Carrier | None = None  # that the document belongs to

    @property
    def place(self) -> str:
        """Where it stands, as text; the id of every replay of it."""
        return f"{self.topic}/{self.partition}@{self.offset}"


def letter_in(record: Any) -> LaneLetter:
    """Return the letter in *record*, as the client gives it."""
    message, trace = message_in(record.value() or b""), carrier_in(record.headers() or ())
    return LaneLetter(record.topic(), record.partition(), record.offset(), message, trace)


def message_in(value: bytes) -> DlqMessage:
    """Return the message in *value*; what another program wrote is in its field `undecoded`."""
    try:
        message = DlqMessage.FromString(value)
    except DecodeError:
        return DlqMessage(undecoded=value)
    if not message.HasField("stream") and not message.HasField("undecoded"):
        message.undecoded = value
    return message


def doc_id_of(letter: DlqMessage) -> str:
    """Return the id of the document that *letter* carries or refers to."""
    stream = letter.stream
    return stream.document_ref.doc_id if stream.HasField("document_ref") else stream.document.doc_id


def reprocess_count_of(letter: DlqMessage) -> int:
    """Return how often *letter* was replayed before."""
    return max(letter.dlq_reprocess_count, letter.stream.reprocess_count)


def refusal_of(letter: LaneLetter) -> str:
    """Return why *letter* can be sent to no node; nothing if it can."""
    if letter.message.HasField("undecoded") or not letter.message.stream.stream_id:
        return f"{letter.place} holds no PipeStream, so it can be sent to no node"
    return ""


def stream_again(letter: LaneLetter, target: Node) -> PipeStream:
    """Return the stream of *letter* for the input of *target*; its next replay counts one more."""
    stream = PipeStream()
    stream.CopyFrom(letter.message.stream)
    stream.current_node_id = target.id
    stream.reprocess_count = reprocess_count_of(letter.message) + 1
    stream.replay_id = letter.place
    return stream
