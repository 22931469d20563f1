"""
Dead letters and quarantined documents.

Owns how a failed document becomes a `DlqMessage`, for its DLQ topic and for quarantine, and how one is read again:
`DlqCodec` is the consumer's port for it. What the message says of calls, topic, partition and offset is what really
happened. Pure: knows no client and no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.message import DecodeError

from redrive.sources.kafka.records.dead_letter import MessageParts
from redrive.sources.kafka.records.output import Output
from redrive.sources.pipeline.engine.journey.streams import instant
from redrive.sources.pipeline.graph import names
from redrive.sources.pipeline.modules.failures import (
    StepFailed,
    StepGivenUp,
    Trouble,
    Word,
    quarantined,
    word_and_text,
)
from redrive.sources.pipeline.protos.document_pb2 import DlqMessage, PipeStream

if TYPE_CHECKING:
    from redrive.core.letter import Failure
    from redrive.sources.kafka.records.dead_letter import FailedRecord, Header
    from redrive.sources.pipeline.graph.model import Graph, Node

_OURS = {StepFailed.__name__, StepGivenUp.__name__}


class CameFrom(NamedTuple):
    """Where a document was received: a place in a topic, or nowhere if it came by gRPC."""

    topic: str = ""
    partition: int = 0
    offset: int = 0


BY_GRPC = CameFrom()


def decoded(value: bytes | None) -> PipeStream:
    """Return the stream in *value*; raise StepFailed if there is none."""
    try:
        stream = PipeStream.FromString(value or b"")
    except DecodeError as error:
        raise StepFailed(quarantined(Word.UNDECODABLE_RECORD, f"the record is no PipeStream: {error}")) from None
    if not stream.stream_id:
        raise StepFailed(quarantined(Word.UNDECODABLE_RECORD, "the record is no PipeStream: it has no stream_id"))
    return stream


def dead_letter(
    node: Node, value: bytes | None, trouble: Trouble, *, calls: int, came_from: CameFrom, now_ms: int
) -> DlqMessage:
    """Return the dead letter of a document, a PipeStream in *value*, after so many *calls* of the module of *node*."""
    letter = DlqMessage(
        error_type=trouble.word, error_message=trouble.text, failed_at=instant(now_ms), retry_count=calls,
        failed_node_id=node.id,
    )  # fmt: skip
    if came_from is not BY_GRPC:
        letter.original_topic, letter.original_partition, letter.original_offset = came_from
    try:
        stream = decoded(value)
    except StepFailed:
        letter.undecoded = value or b""
        letter.dlq_reprocess_count = 0
        return letter
    letter.stream.CopyFrom(stream)
    letter.dlq_reprocess_count = stream.reprocess_count
    if not node.dlq.include_payload:
        leave_payload_out(letter)
    return letter


def quarantine_letter(
    node: Node, value: bytes | None, trouble: Trouble, *, calls: int, came_from: CameFrom, now_ms: int
) -> DlqMessage:
    """Return the same for quarantine; there the payload stays, because a person has to look at it."""
    letter = dead_letter(node, value, trouble, calls=calls, came_from=came_from, now_ms=now_ms)
    letter.quarantined = True
    letter.quarantined_at.CopyFrom(letter.failed_at)
    return letter


def leave_payload_out(letter: DlqMessage) -> None:
    """Keep only the reference of the document; a body that is kept nowhere else stays, or a replay were impossible."""
    if letter.stream.HasField("document_ref"):
        letter.payload_left_out = True


def quarantine_output(graph: Graph, node: Node, letter: DlqMessage, key: bytes | None) -> Output:
    """Return *letter* as the message for the quarantine of *node*."""
    return Output(topic=names.quarantine_topic(graph, node), key=key, value=letter.SerializeToString())


def dead_letter_output(graph: Graph, node: Node, letter: DlqMessage, key: bytes | None) -> Output:
    """Return *letter* as the message for the DLQ topic of *node*."""
    return Output(topic=names.dlq_topic(graph, node), key=key, value=letter.SerializeToString())


class DlqCodec:
    """Writes a failed record of the input topic of *node* as a DlqMessage, and reads any DlqMessage."""

    may_be_cut = False

    def __init__(self, node: Node) -> None:
        self._node = node

    def encode(self, failed: FailedRecord) -> MessageParts:
        """Return *failed* as a DlqMessage with the stream id as its key."""
        event, record = failed.event, failed.event.record
        letter = dead_letter(
            self._node, record.value, _trouble(event.failure), calls=event.attempt, now_ms=failed.failed_at,
            came_from=CameFrom(record.topic, record.partition, record.offset),
        )  # fmt: skip
        return MessageParts(letter.stream.stream_id.encode() or record.key, letter.SerializeToString(), [])

    def decode(self, parts: MessageParts) -> MessageParts:
        """Return the stream that a DlqMessage carries, with what it says in headers; any other message as it is."""
        try:
            letter = DlqMessage.FromString(parts.value or b"")
        except DecodeError:
            return parts
        if not letter.HasField("failed_node_id"):
            return parts
        value = letter.undecoded if letter.HasField("undecoded") else letter.stream.SerializeToString()
        return MessageParts(parts.key, value, _headers(letter))


def _trouble(failure: Failure | None) -> Trouble:
    """Return a consumer's failure as trouble; the class is the word of one that is not ours."""
    if failure is None:
        return quarantined(Word.REDRIVE_FAULT, "the reason is unknown")
    name = failure.error_type.rpartition(".")[2]
    return quarantined(*(word_and_text(failure.message) if name in _OURS else (name, failure.message)))


def _headers(letter: DlqMessage) -> list[Header]:
    said = {
        "source-topic": letter.original_topic, "partition": letter.original_partition,
        "offset": letter.original_offset, "x-error-reason": f"{letter.error_type}: {letter.error_message}",
        "x-retry-attempt": letter.retry_count, "x-redrive-node": letter.failed_node_id,
    }  # fmt: skip
    return [(name, str(value).encode()) for name, value in said.items()]
