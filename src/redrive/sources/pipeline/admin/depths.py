"""
How much waits at a node, as the broker knows it.

Owns the depth of a node's input, DLQ and quarantine, and when the oldest dead letter failed. Blocks; for commands and
threads. Knows no engine: it answers while none runs.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from msgspec import Struct

from redrive.sources.pipeline.admin.lanes.jobs import lane_of
from redrive.sources.pipeline.admin.lanes.ledger import LaneLedger, letters_of
from redrive.sources.pipeline.admin.lanes.processed import processed
from redrive.sources.pipeline.engine.node import group_of
from redrive.sources.pipeline.graph import names

if TYPE_CHECKING:
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.pipeline.graph.model import Graph, Node


class NodeDepths(Struct, frozen=True, kw_only=True):
    """What waits at one node."""

    node: str
    depth: int = 0  # documents in the input topic that no engine has processed
    dlq_depth: int = 0  # dead letters that no operator has sent back
    quarantine_depth: int = 0
    oldest_failed_at: float | None = None  # seconds since the epoch, of the oldest of these dead letters


def depths_of(kafka: KafkaConfig, graph: Graph, node: Node) -> NodeDepths:
    """Return what waits at *node*; raise SourceError if the broker does not answer."""
    parts = processed(kafka, group_of(graph, node), names.input_topic(graph, node))
    dlq, oldest = _lane(kafka, lane_of(graph, node, "dlq"))
    quarantine, _ = _lane(kafka, lane_of(graph, node, "quarantine"), dated=False)
    return NodeDepths(
        node=node.id,
        depth=sum(part.left for part in parts.values()),
        dlq_depth=dlq,
        quarantine_depth=quarantine,
        oldest_failed_at=oldest,
    )


def _lane(kafka: KafkaConfig, topic: str, *, dated: bool = True) -> tuple[int, float | None]:
    """Return how many letters of a lane wait and, if *dated*, when the first of them failed."""
    with closing(LaneLedger(kafka, topic)) as ledger:
        count = ledger.waiting
        if not count or not dated:
            return count, None
        batch = next(letters_of(kafka, ledger), [])
        times = [letter.message.failed_at.ToNanoseconds() / 1e9 for letter in batch]
        return count, min(times, default=None)
