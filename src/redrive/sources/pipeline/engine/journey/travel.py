"""
The way of a document from one node to wherever it waits next.

Owns what follows a step: messages for the topics of the next nodes, for the end, for quarantine; and the nodes behind
direct edges, which are stepped through at once. `Traveller.go` returns when everything behind the node is confirmed in
a topic, at the end, in a DLQ or in quarantine, or raises StepFailed before it has sent anything. Each edge is on its
own: one that fails does not touch the others. Knows no consumer and no offsets.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from redrive.core.classify import KAFKA, classify
from redrive.core.decide import Counted, Failed, decide
from redrive.core.failures.describe import clean
from redrive.core.letter import Status
from redrive.core.trace_context import continuing
from redrive.engine.clock import unix_ms
from redrive.sources.kafka.records.output import Output
from redrive.sources.pipeline.engine.gate import PartitionLeft
from redrive.sources.pipeline.engine.journey.dead_letters import (
    BY_GRPC,
    dead_letter,
    dead_letter_output,
    decoded,
    quarantine_letter,
    quarantine_output,
)
from redrive.sources.pipeline.engine.journey.streams import done_record, next_stream
from redrive.sources.pipeline.graph import names
from redrive.sources.pipeline.modules.failures import Remedy, StepFailed, Trouble, Word, quarantined
from redrive.sources.pipeline.protos.document_pb2 import (
    STEP_STATUS_FAILURE,
    STEP_STATUS_SKIPPED,
    STEP_STATUS_SUCCESS,
    PipeStream,
)
from redrive.sources.pipeline.protos.engine_pb2 import (
    PLACEMENT_DLQ,
    PLACEMENT_DROPPED,
    PLACEMENT_END,
    PLACEMENT_QUARANTINE,
    PLACEMENT_TOPIC,
    BranchPlace,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from redrive.core.trace_context import Carrier
    from redrive.engine.clock import Clock
    from redrive.signals.otel import OpenTelemetry
    from redrive.sources.pipeline.engine.counts import NodeCounts
    from redrive.sources.pipeline.engine.gate import NodeGate
    from redrive.sources.pipeline.engine.journey.bodies import DocumentBodies
    from redrive.sources.pipeline.engine.journey.dead_letters import CameFrom
    from redrive.sources.pipeline.engine.journey.routing import Router
    from redrive.sources.pipeline.engine.journey.step import NodeStep
    from redrive.sources.pipeline.graph.model import Graph, Node
    from redrive.sources.pipeline.protos.engine_pb2 import Placement

    Send = Callable[[Sequence[Output]], Awaitable[None]]

_log = logging.getLogger("redrive.pipeline")


class Place(NamedTuple):
    """One node, as documents meet it."""

    step: NodeStep
    gate: NodeGate
    counts: NodeCounts


class StepCall(NamedTuple):
    """One try of a document at a node: which it is, whether its partition leaves, and how its messages are sent."""

    number: int  # from 1
    came_from: CameFrom
    is_leaving: Callable[[], bool]
    send: Send
    trace: Carrier | None = None  # of this try: its module and its messages continue it
    places: list[BranchPlace] | None = None  # takes where each branch came to, if somebody asks


class _Onward(NamedTuple):
    """What follows a step: messages, branches that go to a node without a topic between, and a branch that ended."""

    messages: list[Output]
    direct: list[tuple[Node, PipeStream]]
    ended: PipeStream | None


class Traveller:
    """Takes documents through *graph*; *places* are its nodes by id."""

    def __init__(
        self, graph: Graph, places: Mapping[str, Place], router: Router, bodies: DocumentBodies, clock: Clock,
        tracing: OpenTelemetry | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.places, self._router, self.bodies, self._clock = graph, places, router, bodies, clock
        self._tracing = tracing
        self.under_way = 0  # documents

    async def go(self, node: Node, value: bytes | None, call: StepCall) -> None:
        """
        Take the document in *value* through *node*, and send it on.

        Raise StepFailed if the module has to be called again; documents that no call can help go to quarantine here.
        """
        self.under_way += 1
        try:
            onward = await self._step(node, value, call)
            await self._send_on(onward, call)
            if onward.ended is not None:
                await self.bodies.ended(onward.ended)
        except StepFailed as error:
            if error.trouble.remedy is not Remedy.QUARANTINE:
                raise
            await self.quarantine(node, value, error.trouble, call)
        finally:
            self.under_way -= 1
        self.places[node.id].counts.calls[call.number] += 1

    async def quarantine(self, node: Node, value: bytes | None, trouble: Trouble, call: StepCall) -> None:
        """Send the document in *value* to the quarantine of *node*; return once that is confirmed."""
        value = await self.bodies.put_aside(value, with_body=True)
        letter = quarantine_letter(node, value, trouble, calls=call.number, came_from=call.came_from, now_ms=unix_ms())
        message = quarantine_output(self.graph, node, letter, letter.stream.stream_id.encode() or None)
        await _send(call, [message])
        _placed(call, PLACEMENT_QUARANTINE, node.id, letter.stream.branch, message.topic)
        self.places[node.id].counts.quarantined += 1
        _log.warning("a document of node %s went to quarantine: %s", node.id, trouble.word)

    # ------------------------------------------------------------------ the step itself

    async def _step(self, node: Node, value: bytes | None, call: StepCall) -> _Onward:
        """Step through *node* as soon as its gate lets it; a document whose node is held waits and tries again."""
        place, is_new = self.places[node.id], call.number == 1
        while True:
            await place.gate.enter(call.is_leaving)
            try:
                stream = self._read(value)
                if is_new:
                    is_new = False
                    place.counts.began(stream)
                await self._take(place, stream, call)
                return self._ways(node, stream, call)
            except StepFailed as error:
                place.counts.failed(error.trouble.word, error.trouble.text)
                if not place.gate.stops(error.trouble):
                    raise

    def _read(self, value: bytes | None) -> PipeStream:
        stream = decoded(value)
        if stream.current_node_id and stream.current_node_id not in self.graph.by_id:
            said = clean(stream.current_node_id, 100)
            raise StepFailed(quarantined(Word.UNKNOWN_NODE, f"the graph has no node {said!r}"))
        return stream

    async def _take(self, place: Place, stream: PipeStream, call: StepCall) -> None:
        counts, began, was_called = place.counts, self._clock.monotonic(), True
        counts.running += 1
        try:
            was_called = await place.step.run(stream, call.number, call.trace)
        finally:
            counts.running -= 1
            ended = self._clock.monotonic()
            if was_called:
                counts.called(ended - began)
        counts.went_well(ended)
        status = stream.metadata.history[-1].status
        if status != STEP_STATUS_SUCCESS:
            counts.failures += status == STEP_STATUS_FAILURE
            counts.skipped += status == STEP_STATUS_SKIPPED
        if was_called:
            place.gate.succeeded()
        else:
            place.gate.skipped()

    # ------------------------------------------------------------------ what follows

    def _ways(self, node: Node, stream: PipeStream, call: StepCall) -> _Onward:
        """Return the messages and direct edges that carry *stream* on, or to its end; raise StepFailed."""
        found = self._router.routes(node, stream)
        if not found:
            return self._end(node, stream, call)
        onward, sent = _Onward([], [], None), self.places[node.id].counts.sent
        for left, (edge, branch) in enumerate(found, 1 - len(found)):  # at 0 none is left
            target, going = self.graph.by_id[edge.target], next_stream(stream, edge.target, branch, is_last=not left)
            sent[edge.id] += 1
            if edge.transport == "grpc":
                onward.direct.append((target, going))
            else:
                topic = names.input_topic(self.graph, target)
                onward.messages.append(_message(topic, going))
                _placed(call, PLACEMENT_TOPIC, target.id, branch, topic)
        return onward

    def _end(self, node: Node, stream: PipeStream, call: StepCall) -> _Onward:
        self.places[node.id].counts.ended += 1
        done = done_record(self.graph, node, stream, now_ms=unix_ms())
        key = stream.stream_id.encode()
        ended = Output(topic=names.done_topic(self.graph), key=key, value=done.SerializeToString())
        _placed(call, PLACEMENT_END, node.id, stream.branch, node.output or ended.topic)
        return _Onward([ended] if node.output is None else [_message(node.output, stream), ended], [], stream)

    async def _send_on(self, onward: _Onward, call: StepCall) -> None:
        if not onward.direct:
            await _send(call, onward.messages)
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_send(call, onward.messages))
                for node, stream in onward.direct:
                    group.create_task(self.arrive(node, stream, call))
        except* PartitionLeft:
            raise PartitionLeft from None

    # ------------------------------------------------------------------ documents that came by gRPC

    async def arrive(self, node: Node, stream: PipeStream, call: StepCall) -> None:
        """
        Take *stream*, which came by gRPC, through *node* with all its calls.

        Return once it, or its dead letter, is in a topic. It has no offset, and a replay goes to the input topic.
        """
        place, number, value = self.places[node.id], 0, stream.SerializeToString()
        place.counts.received += 1
        while True:
            number += 1
            now = call._replace(number=number, came_from=BY_GRPC)
            try:
                with self._span(node, now) as trace:
                    await self.go(node, value, now._replace(trace=trace))
            except PartitionLeft:
                raise
            except StepFailed as error:
                delay = self.wait_after(node, number, error)
                if delay is None:
                    await self.bury(node, value, error.trouble, now)
                    return
                place.counts.retried += 1
                await self._clock.sleep(delay)
            else:
                return

    def _span(self, node: Node, call: StepCall) -> AbstractContextManager[Carrier | None]:
        """Return the span of one try; without a tracer the trace of *call* goes on as it is."""
        if self._tracing is None:
            return nullcontext(call.trace)
        return self._tracing.stepping(node.id, call.number, call.trace or {})

    def wait_after(self, node: Node, number: int, error: StepFailed) -> float | None:
        """Return how long to wait after call *number*, which ended with *error*; None after the last call."""
        policy = node.dlq.policy
        move = decide(Counted(number), Failed(classify(error, policy, KAFKA)), policy, self._clock.draw())
        return None if move.to is Status.FAILED else move.delay

    async def bury(self, node: Node, value: bytes, trouble: Trouble, call: StepCall) -> None:
        """Send the document in *value* to the DLQ of *node*, or to quarantine if it was replayed too often."""
        counts, stream = self.places[node.id].counts, PipeStream.FromString(value)
        if worn_out(node, stream):
            await self.quarantine(node, value, too_many_replays(node, trouble), call)
        elif not node.dlq.enabled:
            _placed(call, PLACEMENT_DROPPED, node.id, stream.branch, "")
            counts.dropped += 1
            _log.error("a document of node %s is dropped, because its DLQ is off: %s", node.id, trouble.word)
        else:
            kept = await self.bodies.put_aside(value, with_body=node.dlq.include_payload)
            letter = dead_letter(node, kept, trouble, calls=call.number, came_from=call.came_from, now_ms=unix_ms())
            message = dead_letter_output(self.graph, node, letter, letter.stream.stream_id.encode())
            await _send(call, [message])
            _placed(call, PLACEMENT_DLQ, node.id, stream.branch, message.topic)
            counts.dead += 1
        counts.calls[call.number] += 1


def worn_out(node: Node, stream: PipeStream) -> bool:
    """Whether *stream* was replayed into *node* as often as it may be."""
    return stream.reprocess_count >= node.dlq.max_reprocess_count


def too_many_replays(node: Node, trouble: Trouble) -> Trouble:
    """Return the trouble of a document that failed again after all its replays."""
    text = f"it failed after {node.dlq.max_reprocess_count} replays, at last with {trouble.word}: {trouble.text}"
    return quarantined(Word.TOO_MANY_REPLAYS, text)


def _message(topic: str, stream: PipeStream) -> Output:
    return Output(topic=topic, key=stream.stream_id.encode(), value=stream.SerializeToString())


async def _send(call: StepCall, messages: list[Output]) -> None:
    """Send *messages* in the trace of *call*: the next node, or the reader of a replay, continues it."""
    trace = call.trace
    if trace:
        messages = [structs.replace(each, headers=tuple(continuing(each.headers, trace))) for each in messages]
    await call.send(messages)


def _placed(call: StepCall, placement: Placement, node_id: str, branch: str, topic: str) -> None:
    if call.places is not None:
        call.places.append(BranchPlace(branch=branch, placement=placement, node_id=node_id, topic=topic))
