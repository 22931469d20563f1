"""The picture of a graph: well-formed, nothing on top of anything else, failures marked by more than colour."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.sources.pipeline import Edge, Graph, Node
from redrive.sources.pipeline.graph.picture import EdgeTally, NodeTally, Tallies, svg

SVG = "{http://www.w3.org/2000/svg}"


def graph_of(*edges: tuple[str, str], alone: tuple[str, ...] = (), **keys) -> Graph:
    names = dict.fromkeys([*(name for edge in edges for name in edge), *alone])
    nodes = tuple(Node(id=name, module=f"{name}:1") for name in names)
    return Graph(env="prod", nodes=nodes, edges=tuple(Edge(source=a, target=b, **keys) for a, b in edges))


def boxes(picture: ET.Element) -> list[tuple[float, float, float, float]]:
    found = picture.findall(f"{SVG}g/{SVG}rect")
    return [tuple(float(box.get(key)) for key in ("x", "y", "width", "height")) for box in found]


def texts(picture: ET.Element) -> list[str]:
    return ["".join(each.itertext()) for each in picture.iter(f"{SVG}text")]


def thirty_nodes() -> Graph:
    edges = [(f"n{n}", f"n{n + 1 + n % 3}") for n in range(26)] + [(f"n{n}", f"n{n + 4}") for n in range(0, 24, 2)]
    return graph_of(*dict.fromkeys(edges), alone=("alone", "apart"))


def assert_apart(picture: ET.Element) -> None:
    for (x, y, width, height), (other_x, other_y, _, _) in combinations(boxes(picture), 2):
        assert abs(x - other_x) >= width or abs(y - other_y) >= height


def test_thirty_nodes_stand_apart_and_inside_the_paper():
    picture = ET.fromstring(svg(thirty_nodes()))  # noqa: S314 - our own
    width, height = float(picture.get("width")), float(picture.get("height"))
    assert len(boxes(picture)) == len(thirty_nodes().nodes) >= 30
    assert_apart(picture)
    assert all(x > 0 and y > 0 and x + w < width and y + h < height for x, y, w, h in boxes(picture))
    assert max(width, height) < 4000


def test_counts_are_on_the_edges_and_failing_nodes_say_what_fails():
    tallies = Tallies(
        nodes=[
            NodeTally(node_id="a", documents_in=1200),
            NodeTally(node_id="b", dead_letters=7),
            NodeTally(node_id="c", state="held"),
            NodeTally(node_id="d", state="paused"),
        ],
        edges=[EdgeTally(edge_id="a->b", sent=12345)],
    )
    picture = ET.fromstring(svg(graph_of(("a", "b"), ("b", "c"), ("c", "d")), tallies))  # noqa: S314 - our own
    said = texts(picture)
    assert {"1,200 documents", "7 dead", "held", "paused"} <= set(said)
    assert any(text.endswith("12,345") for text in said)
    marked = [box.get("class") for box in picture.findall(f"{SVG}g/{SVG}rect")]
    assert marked == ["node", "node failing", "node failing", "node waiting"]


def test_labels_do_not_cover_each_other():
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "a"), ("d", "b")]
    counts = [EdgeTally(edge_id=f"{a}->{b}", sent=100_000) for a, b in edges]
    picture = ET.fromstring(svg(graph_of(*edges), Tallies(edges=counts)))  # noqa: S314 - our own
    places = [(float(t.get("x")), float(t.get("y"))) for t in picture.iter(f"{SVG}text") if t.get("class") == "label"]
    assert len(places) == len(edges)
    assert all(abs(x - u) > 30 or abs(y - v) >= 12 for (x, y), (u, v) in combinations(places, 2))


def test_two_nodes_that_lead_to_each_other_have_two_edges():
    picture = ET.fromstring(svg(graph_of(("a", "b"), ("b", "a"))))  # noqa: S314 - our own
    assert len(picture.findall(f"{SVG}path")) == 2


def test_the_same_graph_is_the_same_picture():
    assert svg(thirty_nodes()) == svg(thirty_nodes())


def test_names_cannot_break_the_picture():
    nodes = (Node(id="<script>&", module='"x"\x00\x1b:1'), Node(id="b", module="h:1"))
    graph = Graph(env="<e>", nodes=nodes, edges=(Edge(source="<script>&", target="b", when='a < "b" && c'),))
    assert "<script>" not in svg(graph)
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", svg(graph))
    ET.fromstring(svg(graph))  # noqa: S314 - our own


NAMES = st.sampled_from("abcdefgh")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NAMES, NAMES), max_size=16, unique=True), st.booleans())
def test_any_graph_can_be_drawn(edges, alone):
    graph = graph_of(*edges, alone=("x", "y") if alone else ("x",))
    picture = ET.fromstring(svg(graph))  # noqa: S314 - our own
    assert len(boxes(picture)) == len(graph.nodes)
    assert len([path for path in picture.findall(f"{SVG}path")]) == len(graph.edges)  # noqa: C416 - elements are falsy
    assert_apart(picture)
