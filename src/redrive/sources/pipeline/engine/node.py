"""
One node at work.

Owns the consumer of a node's input topic: its group, its policy, where its dead letters go, and the worker that takes
each record through the node. In the exactly-once mode the worker returns its messages for the consumer's transaction;
otherwise it has them confirmed before it returns, and the offset is committed after that. Knows no other node.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from redrive.core.classify import KAFKA
from redrive.core.decide import next_try
from redrive.core.trace_context import carrier_in
from redrive.sources.kafka.config import ExecutionConfig
from redrive.sources.kafka.consumer import ParallelConsumer
from redrive.sources.kafka.execution.handlers import record_handler
from redrive.sources.kafka.records.dead_letter import DeadLetterNames
from redrive.sources.pipeline.engine.journey.dead_letters import CameFrom, DlqCodec
from redrive.sources.pipeline.engine.journey.travel import StepCall
from redrive.sources.pipeline.graph import names
from redrive.sources.pipeline.modules.failures import StepFailed, Word, failed_with, quarantined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.signals.tracing import Tracing
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.records.output import Output
    from redrive.sources.kafka.records.record import Record
    from redrive.sources.pipeline.engine.counts import NodeCounts
    from redrive.sources.pipeline.engine.journey.travel import Send, Traveller
    from redrive.sources.pipeline.graph.model import Graph, Node

_log = logging.getLogger("redrive.pipeline")
_AHEAD = 4  # documents in progress for each call at once: those that are not in a call wait for the broker
_BUFFERED = 64  # documents in memory for each call at once


class NodeWorker:
    """Takes the records of a node's input topic through the node; *send* is None in the exactly-once mode."""

    def __init__(self, traveller: Traveller, node: Node, counts: NodeCounts, send: Send | None) -> None:
        self.traveller, self._node, self._counts, self._send = traveller, node, counts, send

    async def __call__(self, record: Record) -> tuple[Output, ...]:
        """Take *record* through the node; raise StepFailed if its module has to be called again."""
        kept: list[Output] = []
        # Without a tracer in this engine, the document's trace still reaches its modules and the next node.
        trace = record.trace or (carrier_in(record.headers) if record.headers else None)
        call = StepCall(record.attempt, CameFrom(record.topic, record.partition, record.offset), _leaving(self, record),
                    self._send or _keeping(kept), trace)  # fmt: skip
        self._counts.received += record.attempt == 1
        try:
            await self.traveller.go(self._node, record.value, call)
        except StepFailed as error:
            await self._failed(record, error, call)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours: the document is neither lost nor tried for ever
            _log.exception("node %s could not go on with %r", self._node.id, record)
            trouble = quarantined(Word.REDRIVE_FAULT, f"redrive itself failed: {type(error).__name__}")
            await self.traveller.quarantine(self._node, record.value, trouble, call)
            self._counts.calls[record.attempt] += 1
        return tuple(kept)

    async def _failed(self, record: Record, error: StepFailed, call: StepCall) -> None:
        """Let the consumer try *record* again, or bury it after its last call."""
        is_last = self.traveller.wait_after(self._node, record.attempt, error) is None
        if is_last and not record.assignment.closed:
            await self.traveller.bury(self._node, record.value or b"", error.trouble, call)
            return
        self._counts.retried += not is_last
        # The consumer logs what it is told, and a module's own words may quote the document.
        raise failed_with(structs.replace(error.trouble, text="")) from None

    def may_leave(self, record: Record) -> bool:
        """Whether *record*, which waits at the gate, may be given back: at its last call it would be buried."""
        place = record.assignment
        return place.closed or (place.leaving and not next_try(record.attempt, self._node.dlq.policy, 0.0).exhausted)


def _leaving(worker: NodeWorker, record: Record) -> Any:
    return lambda: worker.may_leave(record)


def _keeping(kept: list[Output]) -> Send:
    async def keep(outputs: Sequence[Output]) -> None:
        kept.extend(outputs)

    return keep


def group_of(graph: Graph, node: Node) -> str:
    """Return the consumer group of *node*: engines of one graph share it out."""
    return f"redrive.{graph.env}.{node.id}"


def consumer_of(
    graph: Graph, node: Node, kafka: KafkaConfig, worker: NodeWorker, tracing: Tracing = None
) -> ParallelConsumer:
    """Return the consumer of the input topic of *node*."""
    source, dead = names.input_topic(graph, node), names.dlq_topic(graph, node)
    own = replace(
        kafka, consumer_group=group_of(graph, node), dlq_enabled=node.dlq.enabled, dlq_codec=DlqCodec(node),
        dlq_names=DeadLetterNames(topic_of=lambda _topic: dead, source_of=lambda dlq: source if dlq == dead else ""),
        dlq_create_topics=graph.create_topics, crash_loop_limit=0,
        transactional_id=kafka.transactional_id and f"{kafka.transactional_id}.{node.id}",  # nodes must not fence nodes
        queue_max_messages=min(kafka.queue_max_messages, max(1000, node.concurrency * _BUFFERED)),
    )  # fmt: skip
    handler = record_handler(worker, policy=node.dlq.policy, rules=KAFKA)
    execution = ExecutionConfig(max_in_flight=node.concurrency * _AHEAD, max_retries=node.dlq.max_retries)
    return ParallelConsumer(
        [source], handler, group=own.consumer_group, execution=execution, kafka=own, tracing=tracing
    )
