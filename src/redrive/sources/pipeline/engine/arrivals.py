"""
Documents that come by gRPC.

Owns what an engine promises to a caller that hands it a document without Kafka. `submit` returns once the document is
confirmed in the input topic of a node. `process` takes it through a node at once, and returns once each of its branches
is confirmed in a topic, at the end, in the DLQ or in quarantine. Until then the document is the caller's: after an
error or a crash the caller hands it over again, which may repeat branches and loses none. Knows no server.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from redrive.engine.clock import unix_ms
from redrive.errors import SettingsError, SourceError
from redrive.sources.pipeline.engine.gate import PartitionLeft
from redrive.sources.pipeline.engine.journey.dead_letters import BY_GRPC
from redrive.sources.pipeline.engine.journey.streams import instant
from redrive.sources.pipeline.engine.journey.travel import StepCall
from redrive.sources.pipeline.engine.outputs import TooLarge
from redrive.sources.pipeline.engine.sending import entering_document, entry_node, sent_document
from redrive.sources.pipeline.modules.failures import StepFailed

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping

    from redrive.core.trace_context import Carrier
    from redrive.sources.pipeline.engine.journey.travel import Traveller
    from redrive.sources.pipeline.engine.outputs import ConfirmedOutputs
    from redrive.sources.pipeline.engine.sending import SentDocument
    from redrive.sources.pipeline.graph.model import Graph, Node
    from redrive.sources.pipeline.protos.document_pb2 import PipeDoc, PipeStream
    from redrive.sources.pipeline.protos.engine_pb2 import BranchPlace

_T = TypeVar("_T")
MOST = 256  # documents of callers at once; all of them are in memory
DRAIN = 5.0  # seconds that documents under way have when the engine stops, as its consumers give theirs
_YOURS = "the document was not taken and is still yours"


class NotTaken(SourceError):
    """A document that came by gRPC was not taken: it is still the caller's. `code` is gRPC's word for the reason."""

    def __init__(self, code: str, why: str) -> None:
        self.code = code
        super().__init__(why)


class DocumentsByGrpc:
    """Takes documents of callers, and sends what becomes of them through *outputs*."""

    def __init__(self, outputs: ConfirmedOutputs) -> None:
        self._outputs = outputs
        self._open: set[asyncio.Task[Any]] = set()
        self._taken, self._is_closing = 0, False

    async def submit(
        self, traveller: Traveller, document: PipeDoc, *, to: str = "", stream_id: str = "",
        params: Mapping[str, str] | None = None, trace: Carrier | None = None,
    ) -> SentDocument:  # fmt: skip
        """Put *document* into the input topic of a node; return where the broker has it. Raise NotTaken."""
        graph = traveller.graph
        node = _entry(graph, to)
        with self._room():
            return await self._finished(self._put(
                graph, node, document, traveller.bodies, stream_id=stream_id, params=params, trace=trace
            ))  # fmt: skip

    async def _put(self, *given: Any, **options: Any) -> SentDocument:
        try:
            return await sent_document(self._outputs, await entering_document(*given, **options))
        except TooLarge as error:
            raise NotTaken("INVALID_ARGUMENT", str(error)) from None
        except SourceError as error:
            raise NotTaken("UNAVAILABLE", f"{error}; {_YOURS}") from None

    async def process(
        self, traveller: Traveller, node_id: str, stream: PipeStream, trace: Carrier | None = None
    ) -> list[BranchPlace]:
        """Take *stream* through a node with all its calls; return where each branch of it is now. Raise NotTaken."""
        node = _named(traveller.graph, node_id or stream.current_node_id)
        _complete(traveller.graph, node, stream)
        places: list[BranchPlace] = []
        call = StepCall(1, BY_GRPC, lambda: self._is_closing, self._outputs.send, trace, places)
        with self._room():
            traveller.under_way += 1  # also while it waits between two calls
            try:
                await self._finished(_arrived(traveller, node, stream, call))
            finally:
                traveller.under_way -= 1
        return places

    async def close(self) -> None:
        """Take no more documents; those under way have some seconds, then they are left to their callers."""
        self._is_closing = True
        if self._open:
            await asyncio.wait(self._open, timeout=DRAIN)
        for task in self._open:
            task.cancel()

    async def _finished(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return what *work* returns; raise NotTaken if the engine stops before its end."""
        task = asyncio.create_task(work)
        self._open.add(task)
        try:
            return await task
        except PartitionLeft:
            raise _stopping() from None
        except asyncio.CancelledError:
            if task.cancelled() and self._is_closing:
                raise _stopping() from None
            raise
        finally:
            self._open.discard(task)

    @contextmanager
    def _room(self) -> Iterator[None]:
        if self._is_closing:
            raise _stopping()
        if self._taken >= MOST:
            raise NotTaken("RESOURCE_EXHAUSTED", f"the engine has {MOST} documents of callers already; {_YOURS}, wait")
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


async def _arrived(traveller: Traveller, node: Node, stream: PipeStream, call: StepCall) -> None:
    """Save the body of *stream* if it is large, then take it through *node*: a failed document can be replayed."""
    try:
        if stream.HasField("document"):
            await traveller.bodies.keep(stream, stream.document)
    except StepFailed as error:
        raise NotTaken("UNAVAILABLE", f"{error.trouble.text}; {_YOURS}") from None
    await traveller.arrive(node, stream, call)


def not_started() -> NotTaken:
    """Return the refusal of an engine that does not run yet."""
    return NotTaken("UNAVAILABLE", f"the engine has not started; {_YOURS}, hand it over again")


def _stopping() -> NotTaken:
    return NotTaken("UNAVAILABLE", f"the engine stops; {_YOURS}, hand it to another engine")


def _entry(graph: Graph, name: str) -> Node:
    if name:
        return _named(graph, name)
    try:
        return entry_node(graph)
    except SettingsError as error:
        raise NotTaken("INVALID_ARGUMENT", str(error)) from None


def _named(graph: Graph, name: str) -> Node:
    if not name:
        raise NotTaken("INVALID_ARGUMENT", "the request names no node; give node_id")
    if name not in graph.by_id:
        raise NotTaken("NOT_FOUND", f"the graph has no node {name[:100]!r}; it has {', '.join(graph.by_id)}")
    return graph.by_id[name]


def _complete(graph: Graph, node: Node, stream: PipeStream) -> None:
    """Note in *stream* where it is; one that has just been made gets what `new_stream` says."""
    if not stream.stream_id:
        raise NotTaken("INVALID_ARGUMENT", "the stream has no stream_id; choose one, and keep it when you call again")
    metadata = stream.metadata
    stream.current_node_id = node.id
    metadata.entry_node_id = metadata.entry_node_id or node.id
    if not metadata.graph_id:
        metadata.graph_id, metadata.graph_version = graph.id, graph.version
    if not metadata.HasField("created_at"):
        metadata.created_at.CopyFrom(instant(unix_ms()))
