"""Conditions: what they see of a document, and what they say about it."""

from __future__ import annotations

import pytest

from redrive.sources.pipeline import Edge, Graph, Node
from redrive.sources.pipeline.graph.conditions import Conditions, View, slim_document
from redrive.sources.pipeline.graph.problems import Undecided
from redrive.sources.pipeline.protos.document_pb2 import DocumentReference, PipeDoc, PipeStream


def stream(**document) -> PipeStream:
    return PipeStream(stream_id="s", hop_count=2, document=PipeDoc(**{"doc_id": "d", "type": "pdf"} | document))


def routes(edges: list[Edge], of: PipeStream | None = None) -> list[str] | Undecided:
    targets = sorted({edge.target for edge in edges})
    graph = Graph(env="e", nodes=tuple(Node(id=name, module="h:1") for name in ["a", *targets]), edges=tuple(edges))
    taken = Conditions(graph).edges("a", View(of or stream()))
    return taken if isinstance(taken, Undecided) else [edge.target for edge in taken]


def admits(condition: str | None, of: PipeStream | None = None) -> bool | Undecided:
    graph = Graph(env="e", nodes=(Node(id="a", module="h:1", when=condition),))
    return Conditions(graph).admits("a", View(of or stream()))


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        (None, True),
        ('document.type == "pdf"', True),
        ('document.type == "html"', False),
        ('"lang" in document.attributes && document.attributes.lang == "de"', True),
        ("document.body_size > 3", True),
        ("document.data.score > 0.5", True),
        ("stream.hop_count == 2", True),
        ("stream.metadata.context_params.size() == 0", True),
        ('document.filename.endsWith(".pdf")', False),
    ],
)
def test_a_condition_asks_about_the_document_and_its_stream(condition, answer):
    asked = stream(attributes={"lang": "de"}, body=b"12345", filename="a.txt")
    asked.document.data["score"] = 0.7
    assert admits(condition, asked) is answer


def test_a_document_whose_body_is_kept_elsewhere_is_decided_upon_without_it():
    reference = DocumentReference(document=PipeDoc(type="pdf", body_size=10**9), key="k")
    assert admits('document.type == "pdf" && document.body_size > 1000', PipeStream(document_ref=reference)) is True


def test_the_view_has_no_body():
    slim = slim_document(stream(body=b"x" * 1000))
    assert (slim.body, slim.body_size, slim.type) == (b"", 1000, "pdf")


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ('document.attributes.lang == "de"', "Key not found"),
        ("document.body_size / 0 > 1", "divide by zero"),
        ('document.type.matches("(")', "regular expression"),
        ("document.data.score", "Key not found"),
    ],
)
def test_an_error_of_cel_is_an_answer_with_its_reason(condition, reason):
    found = admits(condition)
    assert isinstance(found, Undecided)
    assert (found.where, found.condition) == ("node a", condition)
    assert reason in found.reason


def test_a_value_that_is_not_true_or_false_is_undecided():
    asked = stream()
    asked.document.data["score"] = 0.7
    found = admits("document.data.score", asked)
    assert isinstance(found, Undecided)
    assert "must be true or false" in found.reason


def test_every_edge_whose_condition_holds_gets_the_document():
    edges = [Edge(source="a", target="b"), Edge(source="a", target="c", when="false"), Edge(source="a", target="d")]
    assert routes(edges) == ["b", "d"]


def test_an_edge_of_higher_priority_number_is_the_way_out_when_no_other_holds():
    other = Edge(source="a", target="z", priority=9)
    pdf = Edge(source="a", target="b", when='document.type == "pdf"')
    assert routes([other, pdf]) == ["b"]
    assert routes([other, pdf], stream(type="html")) == ["z"]


def test_an_edge_is_not_taken_beyond_its_hops():
    assert routes([Edge(source="a", target="b", max_hops=2)]) == ["b"]
    assert routes([Edge(source="a", target="b", max_hops=1)]) == []


def test_an_edge_that_is_undecided_sends_the_document_nowhere():
    edges = [Edge(source="a", target="b"), Edge(source="a", target="c", when="document.attributes.x == '1'")]
    found = routes(edges)
    assert isinstance(found, Undecided)
    assert found.where == "edge a->c"
