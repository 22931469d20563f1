"""
The verbs of the admin service.

Owns what each does, for a running engine and for a command that has only the graph and the broker. Acts need a store:
it has the pauses, which all engines share, and the audit log. Blocking work runs in threads. Knows no gRPC server.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.sources.pipeline.admin.depths import depths_of
from redrive.sources.pipeline.admin.lanes.jobs import canary_for, lane_of, node_of, quarantine_job, replay_job
from redrive.sources.pipeline.admin.lanes.lane_job import carry_out, preview
from redrive.sources.pipeline.admin.lanes.ledger import LaneLedger, letters_of
from redrive.sources.pipeline.admin.lanes.letter_choice import choice_of
from redrive.sources.pipeline.admin.node_status import status_of
from redrive.sources.pipeline.admin.pauses import pause_name, pauses_of
from redrive.sources.pipeline.admin.shown import branch_message, graph_message, letter_message, progress_message
from redrive.sources.pipeline.admin.trace import WITHIN, trace
from redrive.sources.pipeline.engine.journey.streams import instant
from redrive.sources.pipeline.protos import admin_pb2 as messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.pipeline.admin.lanes.jobs import LaneName
    from redrive.sources.pipeline.admin.lanes.lane_job import LaneJob
    from redrive.sources.pipeline.admin.lanes.lane_letter import LaneLetter
    from redrive.sources.pipeline.admin.lanes.letter_choice import LetterChoice
    from redrive.sources.pipeline.engine.pipeline import Pipeline
    from redrive.sources.pipeline.graph.model import Graph, Node
    from redrive.stores.contract import Store

_PEEKED = 20
_DRAINS = 0.5  # seconds between two looks at a node that drains
_DRAINING = "drains the node "
_NO_STORE = (
    "it needs a store, which keeps the pauses of nodes and the audit log; name one with --url or REDRIVE_URL, or make "
    "it with `redrive migrate`"
)


class AdminDesk:
    """Answers operators about the graph that *graph* returns; *engine* is the one in this process, if there is one."""

    def __init__(
        self, graph: Callable[[], Graph], kafka: KafkaConfig, *, store: Store | None = None,
        engine: Pipeline | None = None, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._graph, self._kafka, self._store, self._engine = graph, kafka, store, engine
        self._clock = clock or SystemClock()

    # ------------------------------------------------------------------ looking

    async def get_graph(self, _request: messages.GetGraphRequest) -> messages.GetGraphResponse:
        """Return the graph, and since when the engine runs it."""
        loaded = None if self._engine is None else instant(self._engine.loaded_ms)
        return messages.GetGraphResponse(graph=graph_message(self._graph()), loaded_at=loaded)

    async def list_nodes(self, request: messages.ListNodesRequest) -> messages.ListNodesResponse:
        """Return the status of nodes, and what edges have carried."""
        graph = self._graph()
        nodes = [node_of(graph, name) for name in request.node_ids] or list(graph.nodes)
        found = await asyncio.gather(*(self._status(graph, node) for node in nodes), *self._removed(request))
        answer = messages.ListNodesResponse(nodes=found, graph_version=graph.version)
        for edge in graph.edges:
            counts = None if self._engine is None else self._engine.counts.get(edge.source)
            sent = None if counts is None else counts.sent[edge.id]
            answer.edges.add(edge_id=edge.id, from_node_id=edge.source, to_node_id=edge.target, sent=sent)
        return answer

    def _removed(self, request: messages.ListNodesRequest) -> list[Awaitable[messages.NodeStatus]]:
        """Return the status of nodes that are not in the graph any more and whose topics are being emptied."""
        if self._engine is None or request.node_ids:
            return []
        return [self._draining(graph, node) for graph, node in self._engine.draining]

    async def _draining(self, graph: Graph, node: Node) -> messages.NodeStatus:
        found = await self._status(graph, node)
        found.state = messages.NODE_STATE_REMOVED
        return found

    async def _status(self, graph: Graph, node: Node) -> messages.NodeStatus:
        depths = await asyncio.to_thread(depths_of, self._kafka, graph, node)
        pauses = {} if self._store is None else await pauses_of(self._store, graph)
        engine = self._engine
        if engine is None or node.id not in engine.counts:
            return status_of(node, depths=depths, pause=pauses.get(node.id))
        known, now = engine.counts[node.id], engine.clock.monotonic()
        return status_of(
            node, depths=depths, pause=pauses.get(node.id), gate=engine.gate(node.id), counts=known, now=now
        )

    async def peek(self, request: messages.PeekRequest) -> messages.PeekResponse:
        """Return the first letters of a lane that a filter picks; bodies only if they are asked for."""
        graph = self._graph()
        node, lane = node_of(graph, request.node_id), _lane_name(request.lane)
        choice, limit = choice_of(request.filter, acts=False), request.limit or _PEEKED
        found = await asyncio.to_thread(self._picked, lane_of(graph, node, lane), choice, limit + 1)
        shown = [letter_message(letter, lane, with_body=request.with_body) for letter in found[:limit]]
        return messages.PeekResponse(letters=shown, more=len(found) > limit)

    def _picked(self, topic: str, choice: LetterChoice, limit: int) -> list[LaneLetter]:
        found: list[LaneLetter] = []
        ledger = LaneLedger(self._kafka, topic)
        try:
            for letters in letters_of(self._kafka, ledger):
                found += [letter for letter in letters if choice.picks(letter.message)]
                if len(found) >= limit:
                    break
        finally:
            ledger.close()
        return found[:limit]

    async def trace(self, request: messages.TraceRequest) -> messages.TraceResponse:
        """Return where a document is."""
        within = request.within.ToNanoseconds() / 1e9 if request.HasField("within") else WITHIN
        found = await asyncio.to_thread(trace, self._kafka, self._graph(), request.stream_id, within=within)
        answer = messages.TraceResponse(stream_id=request.stream_id, complete=found.is_complete)
        for each in found.branches:  # the newest is the last
            answer.branches.append(branch_message(each))
            answer.stream_id, answer.doc_id = each.stream_id, each.doc_id
        return answer

    # ------------------------------------------------------------------ letters of lanes

    async def replay(
        self, request: messages.ReplayRequest, *, lane: LaneName = "dlq"
    ) -> AsyncIterator[messages.ReplayProgress]:
        """Send letters of a lane to the input of their node, or of another; yield the progress."""
        graph = self._graph()
        node = node_of(graph, request.node_id)
        target = node_of(graph, request.to_node_id) if request.to_node_id else node
        choice = choice_of(request.filter, acts=not request.dry_run)
        job = replay_job(
            graph, node, choice, lane=lane, target=target, rate=request.rate or None, limit=request.limit or None,
            canary=request.canary,
        )  # fmt: skip
        verb = "pipeline replay" if lane == "dlq" else "pipeline readmit"
        async for each in self._act(verb, job, request, canary=canary_for(self._kafka, graph, target)):
            yield each

    async def readmit(self, request: messages.ReplayRequest) -> AsyncIterator[messages.ReplayProgress]:
        """Send quarantined documents back; yield the progress."""
        async for each in self.replay(request, lane="quarantine"):
            yield each

    async def quarantine(self, request: messages.QuarantineRequest) -> AsyncIterator[messages.ReplayProgress]:
        """Move dead letters to quarantine; yield the progress."""
        graph = self._graph()
        node = node_of(graph, request.node_id)
        job = quarantine_job(graph, node, choice_of(request.filter, acts=not request.dry_run))
        async for each in self._act("pipeline quarantine", job, request):
            yield each

    async def _act(self, verb: str, job: LaneJob, request: Any, **options: Any) -> AsyncIterator[Any]:
        """Carry *job* out between its two audit entries; a dry run needs none."""
        if request.dry_run:
            yield progress_message(await asyncio.to_thread(preview, self._kafka, job))
            return
        store, target = self._needed(verb), f"{job.topic} {_text(request.filter)}"
        await store.record(request.actor, f"plan {verb}", target, 0, request.reason)
        sent, reports = 0, carry_out(self._kafka, job, **options)
        try:
            while (report := await asyncio.to_thread(next, reports, None)) is not None:
                sent = report.sent
                yield progress_message(report)
        finally:
            await store.record(request.actor, verb, target, sent, request.reason)

    # ------------------------------------------------------------------ nodes

    async def pause(self, request: messages.PauseRequest) -> messages.NodeStatus:
        """Let a node process nothing until it is resumed; its documents stay in its topic."""
        return await self._pause(request, "pipeline pause", paused=True)

    async def resume(self, request: messages.ResumeRequest) -> messages.NodeStatus:
        """Let a node go on, and those that were paused to drain it."""
        graph, store = self._graph(), self._needed("pipeline resume")
        node_of(graph, request.node_id)
        for name, pause in (await pauses_of(store, graph)).items():
            if pause.reason == f"{_DRAINING}{request.node_id}":
                await store.pause(pause_name(graph, name), paused=False, by=request.actor, reason=request.reason)
        return await self._pause(request, "pipeline resume", paused=False)

    async def drain(self, request: messages.DrainRequest) -> AsyncIterator[messages.NodeStatus]:
        """Pause what sends to a node, yield its status until its topic is empty, then pause it."""
        graph, store = self._graph(), self._needed("pipeline drain")
        node = node_of(graph, request.node_id)
        for name in sorted({edge.source for edge in graph.edges if edge.target == node.id} - {node.id}):
            why = f"{_DRAINING}{node.id}"
            await store.pause(pause_name(graph, name), paused=True, by=request.actor, reason=why)
        while (status := await self._status(graph, node)).depth:
            status.state = messages.NODE_STATE_DRAINING
            yield status
            await self._clock.sleep(_DRAINS)
        yield await self._pause(request, "pipeline drain", paused=True)

    async def _pause(self, request: Any, verb: str, *, paused: bool) -> messages.NodeStatus:
        graph, store = self._graph(), self._needed(verb)
        node = node_of(graph, request.node_id)
        await store.pause(pause_name(graph, node.id), paused=paused, by=request.actor, reason=request.reason)
        return await self._status(graph, node)

    def _needed(self, verb: str) -> Store:
        if self._store is None:
            raise SourceError(f"cannot {verb.removeprefix('pipeline ')}: {_NO_STORE}")
        return self._store


def _lane_name(lane: int) -> LaneName:
    if lane in {messages.LANE_UNSPECIFIED, messages.LANE_DLQ}:
        return "dlq"
    if lane == messages.LANE_QUARANTINE:
        return "quarantine"
    raise SourceError("only the DLQ and the quarantine of a node can be looked at; name one of them")


def _text(choice: messages.LetterFilter) -> str:
    """Return a filter for the audit log, without the text that it looks for: that may be a part of a document."""
    named = [field.name for field, _ in choice.ListFields()]
    return "by " + ", ".join(named) if named else "everything"
