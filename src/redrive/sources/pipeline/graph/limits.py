"""
Which numbers and texts a graph may have.

Owns the bounds of every key, with the way out. Knows nothing of how nodes are joined.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from redrive.core.checks.did_you_mean import did_you_mean
from redrive.sources.pipeline.graph.problems import GraphProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.sources.pipeline.graph.model import DlqSettings, Edge, Graph, Node

CODES = (
    *("CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_LONGEST = 30 * 86_400  # seconds of any wait
_MOST = 10_000  # of anything that is counted
_LARGEST = 2**31 - 1  # bytes of a message that gRPC takes
_SCHEMES = ("http://", "https://", "grpc://", "grpcs://")


def graph_limits(graph: Graph) -> Iterator[GraphProblem]:
    """Yield what is out of bounds in the graph itself."""
    yield from _within("graph", "partitions", graph.partitions, 1, _MOST)
    yield from _within("graph", "hop_limit", graph.hop_limit, 1, _MOST)
    yield from _within("graph", "version", graph.version, 0, 2**63 - 1)
    storage = graph.documents
    if storage is not None:
        yield from _within("graph", "documents.inline_limit", storage.inline_limit, 0, _LARGEST)
        yield from _within("graph", "documents.keep_days", storage.keep_days, 0, 36_500)
        if "://" not in storage.url:
            message = "it must be a URL, such as file:///var/lib/redrive/documents or s3://bucket/documents"
            yield GraphProblem("graph", "documents.url", message)


def node_limits(node: Node) -> Iterator[GraphProblem]:
    """Yield what is out of bounds in *node*."""
    where = f"node {node.id}"
    yield from _address(where, node.module)
    yield from _dlq(where, node.dlq)
    yield from _within(where, "timeout", node.timeout, 0.001, _LONGEST)
    yield from _within(where, "concurrency", node.concurrency, 1, _MOST)
    yield from _within(where, "keepalive", node.keepalive, 10, 86_400)
    yield from _within(where, "partitions", node.partitions, 1, _MOST)
    yield from _within(where, "max_message_bytes", node.max_message_bytes, 1024, _LARGEST)
    if node.breaker is not None:
        yield from _within(where, "breaker.failures", node.breaker.failures, 1, _MOST)
        yield from _within(where, "breaker.open_for", node.breaker.open_for, 0.001, _LONGEST)
    if node.tls is not None and (node.tls.certificate is None) != (node.tls.key is None):
        yield GraphProblem(where, "tls", "`certificate` and `key` go together; give both or none")
    for code in node.retry_codes:
        if code not in CODES:
            yield GraphProblem(where, "retry_codes", f"{code!r} is no gRPC code{did_you_mean(code.upper(), CODES)}")


def edge_limits(edge: Edge) -> Iterator[GraphProblem]:
    """Yield what is out of bounds in *edge*."""
    yield from _within(f"edge {edge.id}", "max_hops", edge.max_hops, 1, _MOST)
    yield from _within(f"edge {edge.id}", "priority", edge.priority, -_MOST, _MOST)


def _dlq(where: str, dlq: DlqSettings) -> Iterator[GraphProblem]:
    if dlq.max_retries == 0:
        yield GraphProblem(where, "dlq.max_retries", "it is the number of calls, and 0 makes none; 1 means no retry")
    else:
        yield from _within(where, "dlq.max_retries", dlq.max_retries, 1, _MOST)
    yield from _within(where, "dlq.initial_backoff", dlq.initial_backoff, 0, _LONGEST)
    yield from _within(where, "dlq.max_backoff", dlq.max_backoff, 0, _LONGEST)
    yield from _within(where, "dlq.backoff_multiplier", dlq.backoff_multiplier, 1, 1000)
    yield from _within(where, "dlq.max_reprocess_count", dlq.max_reprocess_count, 0, _MOST)
    if dlq.max_backoff < dlq.initial_backoff:
        message = f"{dlq.max_backoff:g} s is less than initial_backoff, {dlq.initial_backoff:g} s; raise it"
        yield GraphProblem(where, "dlq.max_backoff", message)


def _address(where: str, module: str) -> Iterator[GraphProblem]:
    scheme = next((scheme for scheme in _SCHEMES if module.startswith(scheme)), "")
    if scheme:
        yield GraphProblem(where, "module", f"leave out {scheme!r}: gRPC takes host:port, or dns:///host:port")
    elif not module.startswith("unix:") and not module.rpartition(":")[2].isdecimal():
        yield GraphProblem(where, "module", f"{module!r} has no port; write host:port, or dns:///host:port")


def _within(where: str, key: str, value: float | None, least: float, most: float) -> Iterator[GraphProblem]:
    if value is not None and not (least <= value <= most and math.isfinite(value)):
        shown = (
            f"{value:g}" if isinstance(value, float) else str(value) if abs(value) < 10**18 else "a very large number"
        )
        yield GraphProblem(where, key, f"{shown} is out of bounds; it may be {least:g} to {most:g}")
