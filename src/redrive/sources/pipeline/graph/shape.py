"""
The shape of a graph: what leads where.

Owns the walks over nodes and edges: reachable nodes, cycles, nodes that one document reaches twice. Knows no rule
about what is allowed.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.sources.pipeline.graph.model import Edge, Graph


def reachable(edges: Iterable[Edge], starts: Iterable[str]) -> set[str]:
    """Return the nodes that a document comes to from *starts*, these included."""
    ways: dict[str, list[str]] = {}
    for edge in edges:
        ways.setdefault(edge.source, []).append(edge.target)
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += ways.get(node, [])
    return found


def cycles(edges: Iterable[Edge]) -> list[list[str]]:
    """Return the nodes of every knot of cycles, each knot once."""
    kept = list(edges)
    ahead = {edge.source: reachable(kept, (e.target for e in kept if e.source == edge.source)) for edge in kept}
    knots: list[list[str]] = []
    for node in (node for node in ahead if node in ahead[node]):
        if not any(node in knot for knot in knots):
            knots.append([other for other in ahead if other in ahead[node] and node in ahead[other]])
    return knots


def joins(graph: Graph) -> list[tuple[str, str]]:
    """Return (fan-out, node) for nodes that two branches of one document may reach, the first of each fan-out."""
    found = []
    for node_id, edges in graph.outgoing.items():
        met: set[str] = set()
        for one, other in combinations(edges, 2):
            if one.priority == other.priority:
                met |= reachable(graph.edges, [one.target]) & reachable(graph.edges, [other.target])
        first = next((node.id for node in graph.nodes if node.id in met and node.id != node_id), None)
        found += [(node_id, first)] if first else []
    return found
