"""
The metrics of a pipeline.

Owns their names, labels and meanings, and how they are read from a running engine. Labels are the environment, nodes,
edges and error types: never a document, its id or an error's text. Knows no exporter and no client.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from redrive.signals.metrics import Measure, Metric
from redrive.sources.pipeline.engine.counts import LATENCY_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.sources.pipeline.admin.depths import NodeDepths
    from redrive.sources.pipeline.engine.counts import NodeCounts
    from redrive.sources.pipeline.engine.gate import NodeGate
    from redrive.sources.pipeline.engine.pipeline import Pipeline

    Buckets = list[tuple[str, float]]

_NODE = ("env", "node")
CALLS, LATENCY = "redrive_pipeline_calls", "redrive_pipeline_module_seconds"
CALL_BOUNDS = (1, 2, 3, 5, 10)

PIPELINE_METRICS = (  # each engine counts from 0 at its start
    Metric("redrive_pipeline_in_total", "counter", _NODE, "Documents that came to a node, by Kafka or gRPC."),
    Metric(
        "redrive_pipeline_repeats_total", "counter", _NODE,
        "Documents that a node began again after a crash, a rebalance or by a caller, as far as this engine remembers.",
    ),
    Metric("redrive_pipeline_out_total", "counter", (*_NODE, "edge"), "Documents that a node sent on, by edge."),
    Metric("redrive_pipeline_ended_total", "counter", _NODE, "Branches of documents that ended at a node."),
    Metric("redrive_pipeline_failures_total", "counter", _NODE, "Logical failures, which go on to the next node."),
    Metric("redrive_pipeline_skipped_total", "counter", _NODE, "Documents that skipped a node."),
    Metric("redrive_pipeline_retries_total", "counter", _NODE, "Calls that failed and were made again."),
    Metric(
        CALLS, "histogram", _NODE, "Calls that a document took until it left the node, to any lane.",
        tuple(map(float, CALL_BOUNDS)),
    ),
    Metric(
        LATENCY, "histogram", _NODE,
        "Seconds of a call, also of one that failed: loading the body, the wait for a free slot, the module.",
        LATENCY_BOUNDS,
    ),
    Metric(
        "redrive_pipeline_errors_total", "counter", (*_NODE, "error_type"), "Steps that failed, by the type of error."
    ),
    Metric("redrive_pipeline_dlq_total", "counter", _NODE, "Dead letters that the broker has confirmed."),
    Metric("redrive_pipeline_quarantined_total", "counter", _NODE, "Documents that went to quarantine."),
    Metric("redrive_pipeline_dropped_total", "counter", _NODE, "Documents that failed while the node's DLQ was off."),
    Metric("redrive_pipeline_held", "gauge", _NODE, "1 while a node is held or its breaker is open."),
    Metric("redrive_pipeline_paused", "gauge", _NODE, "1 while an operator has paused a node."),
    Metric("redrive_pipeline_waiting", "gauge", _NODE, "Documents of this engine that wait for a held or paused node."),
    Metric("redrive_pipeline_depth", "gauge", _NODE, "Documents in a node's input topic that no engine has processed."),
    Metric("redrive_pipeline_dlq_depth", "gauge", _NODE, "Dead letters that no operator has sent back."),
    Metric("redrive_pipeline_dlq_age_seconds", "gauge", _NODE, "Age of the oldest of them; 0 if there is none."),
    Metric("redrive_pipeline_quarantine_depth", "gauge", _NODE, "Documents in a node's quarantine."),
)  # fmt: skip


def readings(pipeline: Pipeline) -> Iterator[Measure]:
    """Yield what the nodes of *pipeline* have done and how they are, except the histograms."""
    for name, counts in pipeline.counts.items():
        labels = (pipeline.graph.env, name)
        for what, value in (*_counted(counts), *_stands(pipeline.gate(name))):
            yield Measure(f"redrive_pipeline_{what}", labels, value)
        for edge, sent in list(counts.sent.items()):
            yield Measure("redrive_pipeline_out_total", (*labels, edge), sent)
        for word, number in list(counts.reasons.items()):
            yield Measure("redrive_pipeline_errors_total", (*labels, word), number)


def depth_readings(env: str, depths: NodeDepths, now: float) -> Iterator[Measure]:
    """Yield what waits at a node; *now* is in seconds since the epoch."""
    labels, oldest = (env, depths.node), depths.oldest_failed_at
    yield Measure("redrive_pipeline_depth", labels, depths.depth)
    yield Measure("redrive_pipeline_dlq_depth", labels, depths.dlq_depth)
    yield Measure("redrive_pipeline_dlq_age_seconds", labels, 0 if oldest is None else max(0.0, now - oldest))
    yield Measure("redrive_pipeline_quarantine_depth", labels, depths.quarantine_depth)


def calls(counts: NodeCounts) -> tuple[Buckets, float]:
    """Return how many documents left a node by each bound of calls, and how many calls all of them took."""
    seen = dict(counts.calls)
    buckets = [(f"{float(bound)}", float(sum(n for each, n in seen.items() if each <= bound))) for bound in CALL_BOUNDS]
    return [*buckets, ("+Inf", float(sum(seen.values())))], float(sum(each * n for each, n in seen.items()))


def latency(counts: NodeCounts) -> tuple[Buckets, float]:
    """Return how many calls ended within each bound, and how long all of them took."""
    names = [*(f"{bound}" for bound in LATENCY_BOUNDS), "+Inf"]
    return list(zip(names, map(float, accumulate(counts.took)), strict=True)), counts.seconds


def _counted(counts: NodeCounts) -> Iterator[tuple[str, float]]:
    yield "in_total", counts.received
    yield "repeats_total", counts.repeated
    yield "retries_total", counts.retried
    yield "dlq_total", counts.dead
    for name in ("ended", "failures", "skipped", "quarantined", "dropped"):
        yield f"{name}_total", getattr(counts, name)


def _stands(gate: NodeGate) -> Iterator[tuple[str, float]]:
    yield "held", bool(gate.reason)
    yield "paused", bool(gate.paused)
    yield "waiting", gate.waiting
