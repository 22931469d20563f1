"""
A graph as an SVG picture.

Owns how it looks: boxes in layers, counts on the edges, failing nodes marked by colour and by word. Where
things stand is in `layout`. Knows no engine: what happened to the nodes is handed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from msgspec import Struct

from redrive.sources.pipeline.graph.layout import Layout, laid_out

if TYPE_CHECKING:
    from redrive.sources.pipeline.graph.layout import Point
    from redrive.sources.pipeline.graph.model import Edge, Graph, Node

_BOX = (188, 46)  # width and height
_ACROSS = (318, 70)  # from left to right: from one layer to the next, and from one row to the next
_DOWN = (112, 214)  # from the top to the bottom, the same
_MARGIN = 40
_SCREEN = 1.6  # width by height
_NAME, _SMALL, _LABEL = 24, 32, 20  # characters that fit
_LETTER, _LINE = 6.2, 13.0  # width and height of a label's letters
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2733; }
.small { font-size: 10.5px; fill: #5b6b7b; }
.label { font-size: 11px; fill: #33424f; paint-order: stroke; stroke: #fff; stroke-width: 4px; stroke-linejoin: round; }
.paper { fill: #fff; }
.node { fill: #f3f6fa; stroke: #8496a8; stroke-width: 1.3; }
.failing { fill: #fdecea; stroke: #c62828; stroke-width: 2.4; }
.waiting { fill: #fff6df; stroke: #b07400; stroke-width: 2.4; }
.failing-text { fill: #a31515; font-weight: 600; }
.waiting-text { fill: #7a5100; font-weight: 600; }
.edge { fill: none; stroke: #8496a8; stroke-width: 1.4; }
.direct { stroke-dasharray: 6 4; }
"""
_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="#8496a8"/></marker></defs>'
)


class NodeTally(Struct, frozen=True, kw_only=True):
    """What a picture says about a node."""

    node_id: str
    state: str = "running"  # or paused, held, breaker_open, draining, removed; unspecified if no engine was asked
    dead_letters: int | None = None  # what is not known is not shown
    quarantined: int | None = None
    documents_in: int | None = None


class EdgeTally(Struct, frozen=True, kw_only=True):
    """What a picture says about an edge."""

    edge_id: str
    sent: int | None = None


class Tallies(Struct, frozen=True, kw_only=True):
    """Counts for a picture, in the form in which the engine reports its nodes."""

    nodes: list[NodeTally] = []
    edges: list[EdgeTally] = []


class _Paper:
    """Where things are drawn: from left to right, or downwards if that fits a screen better."""

    def __init__(self, graph: Graph, layout: Layout) -> None:
        self.graph, self.layout = graph, layout
        across, down = self._size(is_down=False), self._size(is_down=True)
        self.is_down = max(down[0], down[1] * _SCREEN) < max(across[0], across[1] * _SCREEN)
        self.width, self.height = down if self.is_down else across
        self._labels: list[tuple[float, float, int]] = []

    def center(self, point: Point) -> tuple[float, float]:
        if self.is_down:
            x, y = point.row * _DOWN[1], point.layer * _DOWN[0]
        else:
            x, y = point.layer * _ACROSS[0], point.row * _ACROSS[1]
        return _MARGIN + x + _BOX[0] / 2, _MARGIN + y + _BOX[1] / 2

    def corners(self, edge: Edge) -> list[tuple[float, float]]:
        """Return where *edge* begins, its corners, and where it ends: at the sides of boxes that face each other."""
        way = self.layout.edges[edge.id]
        points = [self.center(point) for point in way]
        forward = 1 if way[-1].layer > way[0].layer else -1
        leaving = [each for each in self.graph.outgoing[edge.source] if each.source != each.target]
        arriving = [each for each in self.graph.edges if each.target == edge.target and each.source != each.target]
        begin = self._side(points[0], forward, self._spread(leaving, edge, at_target=True))
        return [begin, *points[1:-1], self._side(points[-1], -forward, self._spread(arriving, edge, at_target=False))]

    def free(self, x: float, y: float, length: int) -> tuple[float, float]:
        """Return the place nearest to (*x*, *y*) where a label of *length* letters covers no other."""
        steps = (0, 1, -1, 2, -2, 3, -3)
        place = next((y + step * _LINE for step in steps if not self._covers(x, y + step * _LINE, length)), y)
        self._labels.append((x, place, length))
        return x, place

    def _covers(self, x: float, y: float, length: int) -> bool:
        return any(
            abs(x - other) < (length + size) / 2 * _LETTER and abs(y - place) < _LINE
            for other, place, size in self._labels
        )

    def _side(self, middle: tuple[float, float], direction: int, spread: float) -> tuple[float, float]:
        x, y = middle
        if self.is_down:
            return x + spread * 2, y + direction * _BOX[1] / 2
        return x + direction * _BOX[0] / 2, y + spread

    def _spread(self, edges: list[Edge], edge: Edge, *, at_target: bool) -> float:
        """Return how far from the middle of a side *edge* stands, so that several edges do not share one point."""
        far = sorted(edges, key=lambda each: self.layout.nodes[each.target if at_target else each.source].row)
        step = min(8.0, (_BOX[1] - 14) / max(len(far) - 1, 1))
        return (far.index(edge) - (len(far) - 1) / 2) * step

    def _size(self, *, is_down: bool) -> tuple[float, float]:
        layers, rows = self.layout.layers, self.layout.rows
        wide, high = (rows * _DOWN[1], layers * _DOWN[0]) if is_down else (layers * _ACROSS[0], rows * _ACROSS[1])
        return _MARGIN * 2 + wide + _BOX[0], _MARGIN * 2 + high + _BOX[1]


def svg(graph: Graph, tallies: Tallies | None = None) -> str:
    """Return *graph* as SVG, with counts and marks if there are *tallies*."""
    paper = _Paper(graph, laid_out(graph))
    nodes = {tally.node_id: tally for tally in tallies.nodes} if tallies else {}
    sent = {tally.edge_id: tally.sent for tally in tallies.edges} if tallies else None
    title = _text(f"{graph.id}, {graph.env}: {len(graph.nodes)} nodes, {len(graph.edges)} edges")
    size = f'width="{paper.width:.0f}" height="{paper.height:.0f}"'
    view = f'viewBox="0 0 {paper.width:.0f} {paper.height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {view} {size}>',
        f"<title>{title}</title><style>{_STYLE}</style>{_ARROW}",
        f'<rect class="paper" {size}/>',
        *(_edge(paper, edge) for edge in graph.edges),
        *(_box(node, paper.center(paper.layout.nodes[node.id]), nodes.get(node.id)) for node in graph.nodes),
        *(_edge_label(paper, edge, sent) for edge in graph.edges),
        "</svg>",
    ]
    return "".join(f"{part}\n" for part in parts if part)


# ---------------------------------------------------------------------- nodes


def _box(node: Node, center: tuple[float, float], tally: NodeTally | None) -> str:
    x, y = center
    mark, said = _said(node, tally)
    kind, small = (f"node {mark}", f"small {mark}-text") if mark else ("node", "small")
    place = f'x="{x - _BOX[0] / 2:.1f}" y="{y - _BOX[1] / 2:.1f}" width="{_BOX[0]}" height="{_BOX[1]}" rx="8"'
    return (
        f"<g><title>{_text(f'{node.id}: {node.module}')}</title>"
        f'<rect class="{kind}" {place}/>'
        f'<text x="{x:.1f}" y="{y - 4:.1f}" text-anchor="middle">{_text(_cut(node.id, _NAME))}</text>'
        f'<text class="{small}" x="{x:.1f}" y="{y + 13:.1f}" text-anchor="middle">{_text(_cut(said, _SMALL))}</text>'
        "</g>"
    )


def _said(node: Node, tally: NodeTally | None) -> tuple[str, str]:
    """Return how a node is marked, and its second line."""
    if tally is None:
        return "", node.module
    state = tally.state.removeprefix("NODE_STATE_").lower().replace("_", " ")
    words = [f"{tally.dead_letters:,} dead"] if tally.dead_letters else []
    words += [f"{tally.quarantined:,} quarantined"] if tally.quarantined else []
    moves = state in {"running", "unspecified"}
    if words or state in {"held", "breaker open"}:
        return "failing", " · ".join([*([] if moves else [state]), *words])
    if not moves:
        return "waiting", state
    return "", node.module if tally.documents_in is None else f"{tally.documents_in:,} documents"


# ---------------------------------------------------------------------- edges


def _edge(paper: _Paper, edge: Edge) -> str:
    kind = "edge direct" if edge.transport == "grpc" else "edge"
    about = _text(f"{edge.id}{f' when {edge.when}' if edge.when else ''}")
    is_loop = edge.source == edge.target
    path = _loop(*paper.center(paper.layout.nodes[edge.source])) if is_loop else _path(paper.corners(edge), paper)
    return f'<path class="{kind}" marker-end="url(#arrow)" d="{path}"><title>{about}</title></path>'


def _path(corners: list[tuple[float, float]], paper: _Paper) -> str:
    """Return a smooth curve through *corners* that leaves and arrives in the direction of the layers."""
    x, y = corners[0]
    drawn = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in corners[1:]:
        one, other = (x, (y + to_y) / 2), (to_x, (y + to_y) / 2)
        if not paper.is_down:
            one, other = ((x + to_x) / 2, y), ((x + to_x) / 2, to_y)
        drawn.append(f"C{one[0]:.1f} {one[1]:.1f} {other[0]:.1f} {other[1]:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return " ".join(drawn)


def _loop(x: float, y: float) -> str:
    """Return an ear at the right side of a box: no other edge begins or ends at its corner."""
    side = x + _BOX[0] / 2
    return f"M{side:.1f} {y - 14:.1f} C{side + 30:.1f} {y - 34:.1f} {side + 30:.1f} {y + 2:.1f} {side:.1f} {y - 4:.1f}"


def _edge_label(paper: _Paper, edge: Edge, sent: dict[str, int | None] | None) -> str:
    number = None if sent is None else sent.get(edge.id, 0)
    text = (edge.when or "") if number is None else f"{number:,}"
    shown = _cut(text.replace("document.", ""), _LABEL)
    if not shown:
        return ""
    if edge.source == edge.target:
        x, y = paper.center(paper.layout.nodes[edge.source])
        x, y = x + _BOX[0] / 2 + 24, y - 22
    else:
        x, y = _beside(paper, edge)
    x, y = paper.free(x, y, len(shown))
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="middle"'
    return f'<text class="label" {place}><title>{_text(text)}</title>{_text(shown)}</text>'


def _beside(paper: _Paper, edge: Edge) -> tuple[float, float]:
    """Return the middle of the edge's first or last stretch: of the one that fewer other edges share."""
    corners = paper.corners(edge)
    arriving = sum(each.target == edge.target for each in paper.graph.edges)
    near_source = arriving > len(paper.graph.outgoing[edge.source])
    (x, y), (to_x, to_y) = (corners[0], corners[1]) if near_source else (corners[-1], corners[-2])
    share = 0.45
    curve = 3 * share**2 - 2 * share**3  # how far the curve has come sideways by then
    along, aside = (curve, share) if paper.is_down else (share, curve)
    return x + (to_x - x) * along, y + (to_y - y) * aside + 3


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _text(text: str) -> str:
    """Return *text* as XML may hold it."""
    return escape("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text))
