"""
Nodes as messages of the admin service.

Owns how counts of an engine, gates, pauses and depths become the status of a node. Pure. Knows no client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.sources.pipeline.engine.journey.streams import instant
from redrive.sources.pipeline.protos import admin_pb2 as messages

if TYPE_CHECKING:
    from redrive.sources.pipeline.admin.depths import NodeDepths
    from redrive.sources.pipeline.admin.pauses import NodePause
    from redrive.sources.pipeline.engine.counts import NodeCounts
    from redrive.sources.pipeline.engine.gate import NodeGate
    from redrive.sources.pipeline.graph.model import Node


def status_of(
    node: Node, *, depths: NodeDepths | None = None, pause: NodePause | None = None, gate: NodeGate | None = None,
    counts: NodeCounts | None = None, now: float = 0.0,
) -> messages.NodeStatus:  # fmt: skip
    """Return what is known of *node* at the moment *now* of the engine; without one, its depths and its pause."""
    found = messages.NodeStatus(node_id=node.id, module=node.module)
    if depths is not None:
        _add_depths(found, depths)
    if counts is not None:
        _add_counts(found, counts, now)
        found.state = messages.NODE_STATE_RUNNING
    if gate is not None and gate.reason:
        is_breaker = gate.reason.startswith("its breaker")
        found.state = messages.NODE_STATE_BREAKER_OPEN if is_breaker else messages.NODE_STATE_HELD
        found.reason = gate.reason
    if pause is not None:
        found.state, found.reason, found.reason_by = messages.NODE_STATE_PAUSED, pause.reason, pause.by
    return found


def _add_depths(found: messages.NodeStatus, depths: NodeDepths) -> None:
    found.depth, found.dlq_depth, found.quarantine_depth = depths.depth, depths.dlq_depth, depths.quarantine_depth
    if depths.oldest_failed_at is not None:
        found.oldest_dead_letter.CopyFrom(instant(int(depths.oldest_failed_at * 1000)))


def _add_counts(found: messages.NodeStatus, counts: NodeCounts, now: float) -> None:
    found.documents_in, found.documents_out = counts.received, sum(counts.sent.values()) + counts.ended
    found.repeats = counts.repeated
    found.logical_failures, found.retries = counts.failures, counts.retried
    found.dead_letters, found.quarantined, found.dropped = counts.dead, counts.quarantined, counts.dropped
    found.in_flight, found.rate = counts.running, counts.rate(now)
    found.last_error_type, found.last_error_message = counts.last_error
    for part, share in ((found.p50, 0.5), (found.p99, 0.99)):
        if (seconds := counts.within(share)) is not None:
            part.FromNanoseconds(round(seconds * 1e9))
