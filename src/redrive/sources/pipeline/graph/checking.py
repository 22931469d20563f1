"""
What is wrong with a graph, all of it at once.

Owns the rules: which graphs may run, and what their owners should know. Each problem names its node and key, and a
way out. Knows no file and no broker.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from redrive.core.checks.did_you_mean import did_you_mean
from redrive.sources.pipeline.graph import names
from redrive.sources.pipeline.graph.limits import edge_limits, graph_limits, node_limits
from redrive.sources.pipeline.graph.problems import GraphProblem
from redrive.sources.pipeline.graph.shape import cycles, joins, reachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.sources.pipeline.graph.model import Graph, Node


def problems_of(graph: Graph) -> list[GraphProblem]:
    """Return every problem of *graph*, those of the graph first, then node by node, then edge by edge."""
    from redrive.sources.pipeline.graph.conditions import condition_problems  # noqa: PLC0415 - of an extra

    return [
        *graph_limits(graph),
        *_ids(graph),
        *_topics(graph),
        *_entries(graph),
        *(problem for node in graph.nodes for problem in (*node_limits(node), *_node(graph, node))),
        *(problem for edge in graph.edges for problem in edge_limits(edge)),
        *_edges(graph),
        *condition_problems(graph),
        *_cycles(graph),
        *_unreachable(graph),
        *_joins(graph),
        *_shadowed(graph),
    ]


def _ids(graph: Graph) -> Iterator[GraphProblem]:
    if not names.is_topic(graph.env):
        yield GraphProblem("graph", "env", "use letters, digits, '.', '_' and '-': every topic is named after it")
    if not graph.nodes:
        yield GraphProblem("graph", "nodes", "there is none; a pipeline needs at least one")
    for node_id, count in Counter(node.id for node in graph.nodes).items():
        if count > 1:
            yield GraphProblem(f"node {node_id}", "id", f"{count} nodes have this id; give each its own")
    for node in graph.nodes:
        if not names.is_topic(node.id):
            yield GraphProblem(
                f"node {node.id}", "id", "use letters, digits, '.', '_' and '-': its topics are named after it"
            )


def _topics(graph: Graph) -> Iterator[GraphProblem]:
    """Yield names that Kafka refuses, and topics with two meanings; several nodes may share an output."""
    meanings: dict[str, set[str]] = {}
    for topic, key in names.all_topics(graph):
        meanings.setdefault(topic, set()).add("output" if key.endswith(".output") else key)
    named_well = all(names.is_topic(name) for name in (graph.env, *graph.by_id))
    for topic, keys in meanings.items():
        if named_well and not names.is_topic(topic):
            message = f"Kafka allows no topic {topic!r} ({', '.join(sorted(keys))}); change or shorten it"
            yield GraphProblem("graph", "", message)
        if len(keys) > 1:
            yield GraphProblem("graph", "", f"the topic {topic!r} is {' and '.join(sorted(keys))}; give each its own")


def _entries(graph: Graph) -> Iterator[GraphProblem]:
    if graph.entry is not None and graph.entry not in graph.by_id:
        hint = did_you_mean(graph.entry, graph.by_id)
        yield GraphProblem("graph", "entry", f"there is no node {graph.entry!r}{hint}")
    elif graph.nodes and not graph.entries:
        yield GraphProblem("graph", "entry", "an edge leads to every node; name the one that new documents go to")


def _node(graph: Graph, node: Node) -> Iterator[GraphProblem]:
    where = f"node {node.id}"
    if not node.dlq.enabled:
        message = "off: a document that fails here is logged, counted as dropped and gone"
        yield GraphProblem(where, "dlq.enabled", message, "warning")
    if not node.dlq.include_payload and graph.documents is None:
        yield GraphProblem(
            where, "dlq.include_payload", "a dead letter without its document needs `documents.url` to refer to"
        )


def _edges(graph: Graph) -> Iterator[GraphProblem]:
    for edge_id, count in Counter(edge.id for edge in graph.edges).items():
        if count > 1:
            yield GraphProblem(f"edge {edge_id}", "", f"it is there {count} times; join the conditions with ||")
    for edge in graph.edges:
        for key, node_id in (("from", edge.source), ("to", edge.target)):
            if node_id not in graph.by_id:
                hint = did_you_mean(node_id, graph.by_id)
                yield GraphProblem(f"edge {edge.id}", key, f"there is no node {node_id!r}{hint}")


def _cycles(graph: Graph) -> Iterator[GraphProblem]:
    if graph.hop_limit is not None:
        return
    for knot in cycles(edge for edge in graph.edges if edge.max_hops is None):
        message = f"a document may go round {', '.join(knot)} for ever; set `hop_limit`, or `max_hops` on an edge"
        yield GraphProblem("graph", "hop_limit", message)


def _unreachable(graph: Graph) -> Iterator[GraphProblem]:
    """Yield nodes that no document comes to; one with an `input` of its own may be fed by others."""
    found = reachable(graph.edges, (node.id for node in graph.entries))
    for node in graph.nodes if graph.entries else ():
        if node.id not in found and node.input is None:
            message = "no document reaches it; add an edge to it, or remove it"
            yield GraphProblem(f"node {node.id}", "", message)


def _joins(graph: Graph) -> Iterator[GraphProblem]:
    for fan_out, node_id in joins(graph):
        message = f"a document that {fan_out!r} sends two ways may reach it twice: there are no joins"
        yield GraphProblem(f"node {node_id}", "", message, "warning")


def _shadowed(graph: Graph) -> Iterator[GraphProblem]:
    """Yield edges behind one that takes every document."""
    for edges in graph.outgoing.values():
        first = next((edge for edge in edges if edge.when is None and edge.max_hops is None), None)
        for edge in edges if first else ():
            if first and edge.priority > first.priority:
                message = f"no document takes it: {first.id} has a lower priority and no condition"
                yield GraphProblem(f"edge {edge.id}", "priority", message, "warning")
