"""
Where a document is.

Owns the search for every branch of a document within a bound of time: in the records of ends, in the DLQ and
quarantine of each node, and in each input topic, whose partition of the document's key is read first. A record from
which the document went on is marked as past. Blocks; for commands and threads. Knows no command.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from redrive.engine.clock import SystemClock
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.reader import Reader
from redrive.sources.pipeline.admin.lanes.jobs import lane_of
from redrive.sources.pipeline.admin.lanes.lane_letter import doc_id_of, letter_in
from redrive.sources.pipeline.admin.lanes.ledger import LaneLedger
from redrive.sources.pipeline.admin.lanes.processed import processed
from redrive.sources.pipeline.engine.journey.streams import document_of
from redrive.sources.pipeline.engine.node import group_of
from redrive.sources.pipeline.graph import names
from redrive.sources.pipeline.protos.document_pb2 import DoneRecord, PipeStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.pipeline.admin.lanes.processed import ProcessedPart
    from redrive.sources.pipeline.graph.model import Graph, Node

_Read = TypeVar("_Read", bound=Message)
_BATCH = 500
_GROUP = "redrive-trace"  # nothing is committed under it
WITHIN = 10.0  # seconds


class FoundBranch(Struct, frozen=True, kw_only=True):
    """One place that holds, or held, a branch of the document."""

    lane: str  # input, dlq, quarantine or done
    node: str
    branch: str
    topic: str
    partition: int
    offset: int
    at: float  # seconds since the epoch, when the record was written
    stream_id: str
    doc_id: str
    path: tuple[str, ...] = ()
    history: tuple[Any, ...] = ()  # StepExecutionRecords
    error_type: str = ""
    error_message: str = ""
    is_past: bool = False  # it was sent on from here
    next_nodes: tuple[str, ...] = ()  # where it would go from here


class TraceResult(Struct, frozen=True, kw_only=True):
    """What a search found, oldest first; *is_complete* says whether every topic was read before the time was over."""

    wanted: str
    branches: list[FoundBranch]
    is_complete: bool


def trace(
    kafka: KafkaConfig, graph: Graph, wanted: str, *, within: float = WITHIN, clock: Clock | None = None
) -> TraceResult:
    """Return where the stream, or the document, of the id *wanted* is; raise SourceError."""
    search = _Search(kafka, graph, wanted, within, clock or SystemClock())
    found = [*search.ends(), *search.lanes(), *search.inputs()]
    return TraceResult(wanted=wanted, branches=sorted(found, key=lambda each: each.at), is_complete=not search.is_cut)


class _Search:
    def __init__(self, kafka: KafkaConfig, graph: Graph, wanted: str, within: float, clock: Clock) -> None:
        self._kafka, self._graph, self._wanted, self._clock = kafka, graph, wanted, clock
        self._end = clock.monotonic() + within
        self.is_cut = False

    def ends(self) -> Iterator[FoundBranch]:
        """Yield the branches that reached the end."""
        topic = names.done_topic(self._graph)
        for record in self._records(topic) if processed(self._kafka, _GROUP, topic) else ():
            done = _read(DoneRecord, record)
            if self._wanted in {done.stream_id, done.doc_id}:
                yield _found(
                    record, lane="done", node=done.last_node_id, branch=done.branch,
                    path=tuple(done.processing_path), history=tuple(done.history), stream_id=done.stream_id,
                    doc_id=done.doc_id,
                )  # fmt: skip

    def lanes(self) -> Iterator[FoundBranch]:
        """Yield the branches in DLQs and quarantines."""
        for node in self._graph.nodes:
            for lane in ("dlq", "quarantine"):
                yield from self._lane(node, lane)

    def _lane(self, node: Node, lane: Any) -> Iterator[FoundBranch]:
        with closing(LaneLedger(self._kafka, lane_of(self._graph, node, lane))) as ledger:
            for record in self._records(ledger.topic) if ledger.exists else ():
                letter = letter_in(record)
                stream = letter.message.stream
                if self._wanted in {stream.stream_id, doc_id_of(letter.message)}:
                    yield _found(
                        record, lane=lane, node=node.id, branch=stream.branch, is_past=ledger.has(letter),
                        error_type=letter.message.error_type, error_message=letter.message.error_message,
                        next_nodes=(node.id,), **_of(stream),
                    )  # fmt: skip

    def inputs(self) -> Iterator[FoundBranch]:
        """Yield the branches in input topics: of the partition of the key first, since the id may be a document's."""
        parts = {node.id: processed(self._kafka, *_input(self._graph, node)) for node in self._graph.nodes}
        for node in self._graph.nodes:
            if parts[node.id]:
                yield from self._input(node, parts[node.id], _home(self._wanted, len(parts[node.id])))
        for node in self._graph.nodes:
            for number in parts[node.id].keys() - {_home(self._wanted, len(parts[node.id]) or 1)}:
                yield from self._input(node, parts[node.id], number)

    def _input(self, node: Node, parts: dict[int, ProcessedPart], number: int) -> Iterator[FoundBranch]:
        followers = tuple(edge.target for edge in self._graph.outgoing[node.id])
        for record in self._records(names.input_topic(self._graph, node), number):
            stream = _read(PipeStream, record)
            if self._wanted in {stream.stream_id, document_of(stream).doc_id}:
                yield _found(
                    record, lane="input", node=node.id, branch=stream.branch, next_nodes=followers,
                    is_past=parts[number].done.has(record.offset()), **_of(stream),
                )  # fmt: skip

    def _records(self, topic: str, partition: int | None = None) -> Iterator[Any]:
        """Yield the records of *topic*, or of one partition of it, until the time is over."""
        if self._is_over():
            return
        with closing(Reader(self._kafka, topic, _GROUP, resume=False, wanted=Filter(partition=partition))) as reader:
            for batch in reader.batches(_BATCH):
                yield from batch
                if self._is_over():
                    return

    def _is_over(self) -> bool:
        self.is_cut = self.is_cut or self._clock.monotonic() > self._end
        return self.is_cut


def _of(stream: PipeStream) -> dict[str, Any]:
    return {
        "path": tuple(stream.processing_path), "history": tuple(stream.metadata.history),
        "stream_id": stream.stream_id, "doc_id": document_of(stream).doc_id,
    }  # fmt: skip


def _found(record: Any, **known: Any) -> FoundBranch:
    at = record.timestamp()[1] / 1000
    return FoundBranch(topic=record.topic(), partition=record.partition(), offset=record.offset(), at=at, **known)


def _input(graph: Graph, node: Node) -> tuple[str, str]:
    return group_of(graph, node), names.input_topic(graph, node)


def _home(key: str, partitions: int) -> int:
    """Return the partition of *key*, as the client's own partitioner chooses it."""
    return crc32(key.encode()) % partitions


def _read(kind: Callable[[], _Read], record: Any) -> _Read:
    found = kind()
    try:
        found.ParseFromString(record.value() or b"")
    except DecodeError:
        return kind()
    return found
