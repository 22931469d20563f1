"""
Dead documents as letters, and letters as streams.

Owns both directions. People read and edit the stream as JSON, without its body; the exact bytes travel in a header of
the letter, so that unknown fields and bodies come back as they were unless an operator changes them. Pure: knows no
Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from redrive.core.classify import KAFKA, classify_text
from redrive.core.failures.fingerprint import fingerprint
from redrive.core.letter import BYTES, JSON, Draft
from redrive.core.trace_context import carrier_in
from redrive.errors import Reject
from redrive.sources.pipeline.admin.lanes.lane_letter import doc_id_of, message_in, reprocess_count_of
from redrive.sources.pipeline.protos.document_pb2 import PipeStream

if TYPE_CHECKING:
    from redrive.core.letter import Failure, Letter
    from redrive.sources.kafka.collect.convert import FoundRecord
    from redrive.sources.pipeline.protos.document_pb2 import DlqMessage

SCHEME = "pipeline"  # of origins, the default queue, and the beginning of the kind
EXACT = "x-redrive-stream"  # the header with the stream's own bytes
_PART = "pipeline"  # where a letter's metadata speaks of its document
_RULES = msgspec.structs.replace(KAFKA, is_grouped=True)
_TITLE = 600  # characters
_MOST_TRIES = 1_000_000


def draft_of(found: FoundRecord, letter_id: str, *, queue: str = SCHEME) -> Draft:
    """Return the failed letter that the record *found* becomes; the same record twice has one idempotency key."""
    letter = message_in(found.value or b"")
    node = letter.failed_node_id or found.topic.rpartition(".")[2]
    stream = letter.stream
    return Draft(
        id=letter_id,
        queue=queue,
        kind=f"{SCHEME}.{node}",
        payload=readable(stream) if letter.HasField("stream") else letter.undecoded,
        content_type=JSON if letter.HasField("stream") else BYTES,
        key=stream.stream_id or None,
        idempotency_key=f"{found.topic_id}/{found.partition}/{found.offset}",
        origin=f"{SCHEME}:{node}",
        headers=((EXACT, stream.SerializeToString()),) if letter.HasField("stream") else (),
        metadata={_PART: _told(found, letter), **carrier_in(found.headers)},
        failure=_failure(node, letter),
        attempts=min(letter.retry_count, _MOST_TRIES),
        failed_us=letter.failed_at.ToMicroseconds() or found.timestamp * 1000 or None,
        first_failed_us=letter.failed_at.ToMicroseconds() or found.timestamp * 1000 or None,
    )


def readable(stream: PipeStream) -> bytes:
    """Return *stream* as JSON for people, without the body of its document."""
    shown = PipeStream()
    shown.CopyFrom(stream)
    if shown.HasField("document"):
        shown.document.ClearField("body")
    return msgspec.json.encode(MessageToDict(shown, preserving_proto_field_name=True))


def stream_of(letter: Letter) -> PipeStream:
    """Return the stream to send for *letter*, its replay counted; raise Reject if it holds none."""
    told = letter.metadata.get(_PART)
    known: dict[str, Any] = told if isinstance(told, dict) else {}
    stream = _exact(letter) if letter.payload_version == 1 else _edited(letter)
    if not stream.stream_id:
        raise Reject(f"cannot send letter {letter.id!r} to a node: it holds no PipeStream; edit it, or archive it")
    is_quarantined = known.get("lane") == "quarantine"  # a person has looked at it, so its replays count from zero
    stream.reprocess_count = 0 if is_quarantined else int(known.get("replays") or 0) + 1
    stream.replay_id = str(known.get("place") or letter.id)
    return stream


def node_of_origin(origin: str | None) -> str:
    """Return the node that an origin names, or nothing."""
    scheme, _, node = (origin or "").partition(":")
    return node if scheme == SCHEME else ""


def place_of(letter: Letter) -> tuple[str, int, int] | None:
    """Return the topic, partition and offset of the dead document that *letter* was made of."""
    told = letter.metadata.get(_PART)
    topic, _, rest = str(told.get("place") if isinstance(told, dict) else "").rpartition("/")
    number, _, offset = rest.partition("@")
    return (topic, int(number), int(offset)) if topic and number.isdecimal() and offset.isdecimal() else None


def _exact(letter: Letter) -> PipeStream:
    found = next((value for name, value in letter.headers if name == EXACT), b"")
    return PipeStream.FromString(found)


def _edited(letter: Letter) -> PipeStream:
    """Return the stream as an operator wrote it; a body that the JSON does not name stays as it was."""
    before = _exact(letter)
    try:
        stream = ParseDict(msgspec.json.decode(letter.payload), PipeStream())
    except (ParseError, msgspec.MsgspecError, ValueError, TypeError):
        raise Reject(
            f"cannot send letter {letter.id!r} to a node: its payload is no PipeStream in JSON any more; edit it again"
        ) from None
    if stream.HasField("document") and not stream.document.body and before.HasField("document"):
        stream.document.body = before.document.body
    return stream


def _told(found: FoundRecord, letter: DlqMessage) -> dict[str, Any]:
    told: dict[str, Any] = {
        "place": f"{found.topic}/{found.partition}@{found.offset}",
        "lane": "quarantine" if letter.quarantined else "dlq",
        "doc_id": doc_id_of(letter),
        "branch": letter.stream.branch,
        "replays": reprocess_count_of(letter),
        "error_type": letter.error_type,
        "path": list(letter.stream.processing_path),
    }
    if letter.HasField("original_topic"):
        told["from"] = f"{letter.original_topic}/{letter.original_partition}@{letter.original_offset}"
    return {name: value for name, value in told.items() if value not in ("", 0, [])}


def _failure(node: str, letter: DlqMessage) -> Failure:
    """Return its failure; failures of two nodes are never in one group."""
    word, text = letter.error_type or "UnknownFailure", letter.error_message or "the reason is unknown"
    found = classify_text(word, text, rules=_RULES)
    marks = fingerprint(found.error_type, (f"{SCHEME}:{node}",), found.message)
    title = f"{node}: {found.template or found.message}"
    return msgspec.structs.replace(found, fingerprint=marks.id, template=title[:_TITLE])
