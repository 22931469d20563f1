"""
Where the nodes and edges of a graph stand on paper.

Owns the layout in layers (fast-sugiyama). Knows no colour and no text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fast_sugiyama import from_edges

if TYPE_CHECKING:
    from redrive.sources.pipeline.graph.model import Edge, Graph

_UNIT = 100.0  # what the library calls the distance of two layers


class Point(NamedTuple):
    """A place: the layer, and the row within it."""

    layer: float
    row: float


class Layout(NamedTuple):
    """The place of every node, and the corners of every edge from its source to its target."""

    nodes: dict[str, Point]
    edges: dict[str, list[Point]]
    layers: float
    rows: float


def laid_out(graph: Graph) -> Layout:
    """Return where the nodes and edges of *graph* stand; parts that no edge joins stand beside each other."""
    nodes: dict[str, Point] = {}
    drawn: dict[tuple[str, str], list[Point]] = {}
    row = 0.0
    for part in _parts(graph):
        # One part a call: the library confuses corners of one with nodes of another.
        row = _lay_out(part, graph, row, nodes, drawn) + 1
    edges = {edge.id: _way(nodes, drawn, edge) for edge in graph.edges if edge.source != edge.target}
    return Layout(nodes, edges, max((point.layer for point in nodes.values()), default=0), max(row - 1, 0))


def _parts(graph: Graph) -> list[list[str]]:
    """Return the nodes of each part that edges join, in the graph's order."""
    part = {node.id: {node.id} for node in graph.nodes}
    for edge in graph.edges:
        if part[edge.source] is not part[edge.target]:
            joined = part[edge.source] | part[edge.target]
            part |= dict.fromkeys(joined, joined)
    unique = {id(members): members for members in part.values()}
    return [[node.id for node in graph.nodes if node.id in members] for members in unique.values()]


def _lay_out(
    part: list[str], graph: Graph, row: float, nodes: dict[str, Point], drawn: dict[tuple[str, str], list[Point]]
) -> float:
    """Add the nodes and edges of *part* from *row* on; return its last row."""
    numbers = {name: number for number, name in enumerate(part)}
    # The library ends the process when an edge leads back to its own node; the picture draws those itself.
    pairs = {
        (numbers[e.source], numbers[e.target]) for e in graph.edges if e.source in numbers and e.source != e.target
    }
    if not pairs:
        nodes[part[0]] = Point(0.0, row)
        return row
    laid: Any = from_edges(sorted(pairs), vertex_spacing=_UNIT, dummy_vertices=True)
    [(positions, width, height, links)] = laid
    points = {number: Point((height - y) / _UNIT, row + x / _UNIT) for number, (x, y) in positions}
    nodes.update({name: points[number] for name, number in numbers.items()})
    for way in _ways(links or [], len(part)):
        drawn[part[way[0]], part[way[-1]]] = [points[number] for number in way]
    return row + float(width) / _UNIT


def _ways(links: list[tuple[int, int]], nodes: int) -> list[list[int]]:
    """Return each edge as the numbers that it passes: those from *nodes* on are corners, not nodes."""
    steps: dict[int, list[int]] = {}
    for source, target in links:
        steps.setdefault(source, []).append(target)
    found = []
    for source in (number for number in steps if number < nodes):
        for step in steps[source]:
            way = [source, step]
            while way[-1] >= nodes:
                way.append(steps[way[-1]][0])
            found.append(way)
    return found


def _way(nodes: dict[str, Point], drawn: dict[tuple[str, str], list[Point]], edge: Edge) -> list[Point]:
    """Return the corners of *edge*; of two that lead to and fro, the library draws only one."""
    there, back = drawn.get((edge.source, edge.target)), drawn.get((edge.target, edge.source), [])
    return there or back[::-1] or [nodes[edge.source], nodes[edge.target]]
