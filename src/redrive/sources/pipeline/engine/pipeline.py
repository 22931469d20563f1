"""
The pipeline, the class that users hold.

Owns the nodes of a graph while they run: topics, clients, gates, one consumer a node, and what happens when the graph
changes. Start several engines of one graph: Kafka shares the documents out. Knows no document.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from redrive.engine.clock import SystemClock, unix_ms
from redrive.errors import SourceError
from redrive.signals.tracing import open_tracing
from redrive.sources.kafka.config import KafkaConfig
from redrive.sources.kafka.health import Health, judge
from redrive.sources.pipeline.engine.arrivals import DocumentsByGrpc, not_started
from redrive.sources.pipeline.engine.counts import NodeCounts
from redrive.sources.pipeline.engine.draining import QuietSpell
from redrive.sources.pipeline.engine.gate import NodeGate
from redrive.sources.pipeline.engine.journey.bodies import bodies_of
from redrive.sources.pipeline.engine.journey.routing import Router
from redrive.sources.pipeline.engine.journey.step import NodeStep
from redrive.sources.pipeline.engine.journey.travel import Place, Traveller
from redrive.sources.pipeline.engine.node import NodeWorker, consumer_of
from redrive.sources.pipeline.engine.old_bodies import delete_old_bodies
from redrive.sources.pipeline.engine.outputs import ConfirmedOutputs
from redrive.sources.pipeline.engine.topics import prepare
from redrive.sources.pipeline.modules.client import ModuleAddress, ModuleClients

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redrive.core.trace_context import Carrier
    from redrive.engine.clock import Clock
    from redrive.signals.tracing import Tracing
    from redrive.sources.kafka.consumer import ParallelConsumer
    from redrive.sources.pipeline.engine.journey.bodies import DocumentBodies
    from redrive.sources.pipeline.engine.sending import SentDocument
    from redrive.sources.pipeline.graph.model import Graph, Node
    from redrive.sources.pipeline.protos.document_pb2 import PipeDoc, PipeStream
    from redrive.sources.pipeline.protos.engine_pb2 import BranchPlace

_log = logging.getLogger("redrive.pipeline")
_GLANCE = 0.5  # seconds between two looks at nodes that drain


class NodeRun:
    """A node whose consumer runs."""

    def __init__(self, node: Node, worker: NodeWorker, consumer: ParallelConsumer) -> None:
        self.node, self.worker, self.consumer, self._quiet = node, worker, consumer, QuietSpell()
        self.task = asyncio.create_task(consumer.run(), name=f"redrive-node-{node.id}")

    def is_drained(self, now: float, *, awaited: int) -> bool:
        """Whether its topic is empty, as far as this engine's partitions go; *awaited* documents may come to it."""
        parts = self.consumer.partitions
        return self._quiet.is_over(quiet=not awaited and bool(parts) and all(each.lag == 0 for each in parts), now=now)

    async def stop(self) -> None:
        """Drain, commit and leave the group."""
        self.consumer.stop()
        await asyncio.wait([self.task])


class Pipeline:
    """
    Runs *graph*: consumes the input topic of each node, calls its module, and sends documents on.

    A document that fails by infrastructure is retried as its node says and then goes to the node's DLQ topic. With
    *exactly_once*, the messages, dead letters and offsets of a node are in one Kafka transaction. *tracing* is the
    setting of that name: a document's way through all nodes is one trace.
    """

    def __init__(
        self, graph: Graph, kafka: KafkaConfig | None = None, *, exactly_once: bool = False, clock: Clock | None = None,
        tracing: Tracing = None,
    ) -> None:  # fmt: skip
        self.graph, self.loaded_ms = graph, unix_ms()  # since the epoch, when this graph began to run
        self.kafka = replace(kafka or KafkaConfig(), exactly_once=exactly_once)
        self.clock, self._tracing = clock or SystemClock(), tracing
        self._runs: dict[str, NodeRun] = {}
        self._draining: list[tuple[NodeRun, Traveller]] = []
        self._places: dict[str, Place] = {}
        self._started, self._stopping = asyncio.Event(), asyncio.Event()
        self._changing = asyncio.Lock()  # one reload at a time, and none while the engine ends
        self._clients: ModuleClients
        self._outputs: ConfirmedOutputs | None = None
        self._arrivals: DocumentsByGrpc | None = None
        self._traveller: Traveller
        self._old: list[Traveller] = []  # of graphs before a reload, while documents of theirs are under way

    # ------------------------------------------------------------------ what operators see

    @property
    def counts(self) -> Mapping[str, NodeCounts]:
        """What each node has done in this engine."""
        return {name: place.counts for name, place in self._places.items()}

    @property
    def health(self) -> Mapping[str, Health]:
        """The health of each node: red while it is held, with the reason."""
        return {name: self._health(run) for name, run in self._runs.items()}

    def _health(self, run: NodeRun) -> Health:
        gate, known = self._places[run.node.id].gate, run.consumer.health
        held = [f"held: {gate.reason}"] if gate.reason else []
        paused = [f"paused: {gate.paused}"] if gate.paused else []
        refused = [] if self._outputs is None else [f"{topic}: {why}" for topic, why in self._outputs.refused.items()]
        if known.status == "red":
            return judge([*known.reasons, *held, *refused], paused)
        return judge([*held, *refused], [*known.reasons, *paused])

    @property
    def draining(self) -> list[tuple[Graph, Node]]:
        """The nodes that a reload removed and whose topics are not empty yet, each with its graph."""
        return [(traveller.graph, run.node) for run, traveller in self._draining]

    def gate(self, node_id: str) -> NodeGate:
        """Return the gate of a node, to pause and resume it."""
        return self._places[node_id].gate

    # ------------------------------------------------------------------ life

    async def run(self) -> None:
        """Run until stopped or cancelled; raise SourceError or SettingsError if that is impossible."""
        await asyncio.to_thread(prepare, self.graph, self.kafka)
        self._tracing, self._clients = open_tracing(self._tracing) or False, ModuleClients()
        self._outputs = ConfirmedOutputs(self.kafka, self.clock)
        deleting = asyncio.create_task(delete_old_bodies(lambda: self.graph, self.clock))
        try:
            self._begin(self._traveller_of(self.graph))
            self._arrivals = DocumentsByGrpc(self._outputs)
            self._started.set()
            await self._watch()
        finally:
            deleting.cancel()
            await self._end()

    def stop(self) -> None:
        """Let `run` drain, commit and end; call it on the event loop."""
        self._stopping.set()

    async def reload(self, graph: Graph) -> None:
        """
        Go on with *graph*, without losing a document.

        Nodes that did not change go on without a break; changed ones restart; removed ones drain their topics first.
        Raise SourceError or SettingsError if *graph* cannot run; the graph before it goes on then.
        """
        await self._started.wait()
        async with self._changing:
            await asyncio.to_thread(prepare, graph, self.kafka)
            await self._change(self._traveller_of(graph))

    async def _change(self, new: Traveller) -> None:
        """Go on with the graph of *new*."""
        old, graph = self._traveller, new.graph
        changed = [node.id for node in graph.nodes if node.id in self._runs and _differs(old, new, node)]
        await asyncio.gather(*(self._runs.pop(name).stop() for name in changed))
        if self._stopping.is_set():
            raise SourceError("the engine stops, and takes no other graph")
        self._draining += [(self._runs.pop(name), old) for name in self._runs.keys() - graph.by_id.keys()]
        self._old.append(old)
        self._begin(new)
        _log.warning("graph %s goes on with version %d", graph.id, graph.version)

    # ------------------------------------------------------------------ documents of callers

    async def submit(
        self, document: PipeDoc, *, to: str = "", stream_id: str = "", params: Mapping[str, str] | None = None,
        trace: Carrier | None = None,
    ) -> SentDocument:  # fmt: skip
        """Put *document* into the graph, at its entry or the node *to*; return once it is confirmed. Raise NotTaken."""
        if self._arrivals is None:
            raise not_started()
        return await self._arrivals.submit(
            self._traveller, document, to=to, stream_id=stream_id, params=params, trace=trace
        )

    async def process(
        self, stream: PipeStream, node_id: str = "", *, trace: Carrier | None = None
    ) -> list[BranchPlace]:
        """Take *stream* through a node at once; return where each branch is. Raise NotTaken: it stays the caller's."""
        if self._arrivals is None:
            raise not_started()
        return await self._arrivals.process(self._traveller, node_id, stream, trace)

    # ------------------------------------------------------------------ parts

    def _traveller_of(self, graph: Graph) -> Traveller:
        """Return what takes documents through *graph*; raise SettingsError before anything has changed."""
        router, bodies = Router(graph), bodies_of(graph, self.clock)
        places = {node.id: self._place(graph, node, router, bodies) for node in graph.nodes}
        return Traveller(graph, places, router, bodies, self.clock, open_tracing(self._tracing))

    def _begin(self, traveller: Traveller) -> None:
        """Go on with the graph of *traveller*: start its nodes, or hand those that run on to it."""
        graph = traveller.graph
        for name in self._places.keys() & traveller.places.keys():
            node = graph.by_id[name]
            if self._places[name].step.node != node:
                traveller.places[name].gate.renew(node.breaker)
        self.graph, self.loaded_ms, self._traveller = graph, unix_ms(), traveller
        self._places = {**self._places, **traveller.places}
        for node in graph.nodes:
            if node.id in self._runs:
                self._runs[node.id].worker.traveller = self._traveller
            else:
                self._runs[node.id] = self._run_of(graph, node)

    def _place(self, graph: Graph, node: Node, router: Router, bodies: DocumentBodies) -> Place:
        known = self._places.get(node.id)
        gate = NodeGate(node.id, self.clock, node.breaker) if known is None else known.gate
        counts = NodeCounts() if known is None else known.counts
        client = self._clients.at(address_of(node))
        return Place(NodeStep(graph, node, client, bodies, router.admits), gate, counts)

    def _run_of(self, graph: Graph, node: Node) -> NodeRun:
        send = None if self.kafka.exactly_once or self._outputs is None else self._outputs.send
        worker = NodeWorker(self._traveller, node, self._places[node.id].counts, send)
        return NodeRun(node, worker, consumer_of(graph, node, self.kafka, worker, self._tracing))

    async def _watch(self) -> None:
        """Wait until it is stopped, or a consumer ends; end removed nodes that have drained."""
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            while not stopped.done():
                tasks = [run.task for run in self._runs.values()]
                await asyncio.wait([stopped, *tasks], timeout=_GLANCE, return_when=asyncio.FIRST_COMPLETED)
                self._check()
                await self._end_drained()
                await self._close_clients()
        finally:
            stopped.cancel()

    def _check(self) -> None:
        for run in self._runs.values():
            if run.task.done():
                run.task.result()  # raises why it ended
                raise SourceError(f"the consumer of node {run.node.id!r} has ended; start the engine again")

    async def _end_drained(self) -> None:
        now = self.clock.monotonic()
        for pair in [each for each in self._draining if each[0].is_drained(now, awaited=each[1].under_way)]:
            self._draining.remove(pair)
            await pair[0].stop()
            _log.warning("node %s has drained and is gone", pair[0].node.id)

    async def _close_clients(self) -> None:
        """Close the clients that no graph under way uses any more: modules that are gone, renewed certificates."""
        if self._changing.locked():  # a reload has made clients for a graph that has not begun
            return
        draining = [traveller for _, traveller in self._draining]
        self._old = [each for each in self._old if each.under_way or each in draining]
        travellers = (self._traveller, *self._old)
        await self._clients.keep({place.step.client for each in travellers for place in each.places.values()})

    async def _end(self) -> None:
        self._stopping.set()
        async with self._changing:
            await self._stop_all()

    async def _stop_all(self) -> None:
        runs = [*self._runs.values(), *(run for run, _ in self._draining)]
        ends = [run.stop() for run in runs]
        if self._arrivals is not None:
            ends.append(self._arrivals.close())
        await asyncio.gather(*ends)
        for place in self._places.values():
            await place.gate.close()
        await self._clients.close()
        if self._outputs is not None:
            await self._outputs.close()


def address_of(node: Node) -> ModuleAddress:
    """Return where the module of *node* is, and its limits."""
    return ModuleAddress(
        target=node.module, concurrency=node.concurrency, max_message_bytes=node.max_message_bytes, tls=node.tls,
        keepalive=node.keepalive,
    )  # fmt: skip


def _differs(before: Traveller, after: Traveller, node: Node) -> bool:
    """Whether the consumer of *node* has to be made again; with renewed TLS files it has another client."""
    if before.graph.by_id[node.id] != node or before.graph.env != after.graph.env:
        return True
    return before.places[node.id].step.client is not after.places[node.id].step.client
