"""What `check` finds in a graph."""

from __future__ import annotations

import pytest

from redrive.sources.pipeline import Edge, Graph, Node
from redrive.sources.pipeline.graph.checking import problems_of
from redrive.sources.pipeline.graph.model import DlqSettings, DocumentStorage, NodeBreaker, Tls


def graph_of(*edges: str, **extra) -> Graph:
    """Return a graph of edges such as "a b"; nodes are what they name."""
    pairs = [edge.split() for edge in edges]
    ids = list(dict.fromkeys(node for pair in pairs for node in pair)) or ["a"]
    extra = {"nodes": tuple(Node(id=name, module="h:1") for name in ids)} | extra
    return Graph(**{"env": "prod", "edges": tuple(Edge(source=a, target=b) for a, b in pairs)} | extra)


def said(graph: Graph) -> list[str]:
    return [str(problem) for problem in problems_of(graph)]


def one_node(**keys) -> Graph:
    return Graph(env="prod", nodes=(Node(**{"id": "a", "module": "h:1"} | keys),))


def test_a_plain_graph_has_no_problem():
    assert said(graph_of("a b", "b c")) == []


def test_an_edge_to_an_unknown_node_is_a_problem():
    graph = graph_of(
        "parse embed", "parse embet", nodes=(Node(id="parse", module="h:1"), Node(id="embed", module="h:2"))
    )
    assert said(graph) == ["edge parse->embet, to: there is no node 'embet'; did you mean embed?"]


def test_two_nodes_with_one_id_are_a_problem():
    assert "2 nodes have this id" in said(graph_of(nodes=(Node(id="a", module="h:1"), Node(id="a", module="h:2"))))[0]


@pytest.mark.parametrize(
    "other",
    [
        {"input": "in.prod.a"},
        {"input": "dlq.prod.a"},
        {"input": "quarantine.prod.a"},
        {"input": "done.prod"},
        {"dlq": DlqSettings(topic_override="in.prod.a")},
        {"dlq": DlqSettings(topic_override="dlq.prod.a")},
        {"output": "in.prod.a"},
    ],
)
def test_a_topic_with_two_meanings_is_a_problem(other):
    graph = graph_of("a b", nodes=(Node(id="a", module="h:1"), Node(id="b", module="h:2", **other)))
    assert any("give each its own" in problem for problem in said(graph))


def test_several_nodes_may_share_an_output():
    nodes = tuple(Node(id=name, module="h:1", output="docs.indexed") for name in "ab")
    assert said(graph_of("a b", nodes=nodes)) == []


def test_a_cycle_needs_a_hop_limit():
    cycle = graph_of("a b", "b c", "c b")
    assert said(cycle) == [
        "graph, hop_limit: a document may go round b, c for ever; set `hop_limit`, or `max_hops` on an edge"
    ]
    assert said(graph_of("a b", "b c", "c b", hop_limit=20)) == []
    limited = (*cycle.edges[:2], Edge(source="c", target="b", max_hops=5))
    assert said(graph_of("a b", "b c", edges=limited)) == []


def test_a_node_that_no_document_reaches_is_a_problem_unless_it_has_an_input_of_its_own():
    assert said(graph_of("a b", "c d", entry="a", hop_limit=9)) == [
        "node c: no document reaches it; add an edge to it, or remove it",
        "node d: no document reaches it; add an edge to it, or remove it",
    ]
    fed = (Node(id="a", module="h:1"), Node(id="c", module="h:1", input="others"))
    assert said(graph_of(nodes=fed, entry="a")) == []


def test_a_graph_without_an_entry_is_a_problem():
    assert said(graph_of("a b", "b a", hop_limit=9)) == [
        "graph, entry: an edge leads to every node; name the one that new documents go to"
    ]
    assert said(graph_of("a b", "b a", hop_limit=9, entry="a")) == []
    assert "there is no node 'x'" in said(graph_of("a b", entry="x"))[0]


def test_a_document_that_may_reach_a_node_twice_is_a_warning():
    problems = problems_of(graph_of("a b", "a c", "b d", "c d"))
    assert [(problem.where, problem.level) for problem in problems] == [("node d", "warning")]
    assert said(graph_of("a b", "a c", "b d", "c e")) == []


def test_an_edge_that_no_document_takes_is_a_warning():
    edges = (Edge(source="a", target="b"), Edge(source="a", target="c", priority=1))
    assert said(graph_of("a b", "a c", edges=edges)) == [
        "edge a->c, priority: no document takes it: a->b has a lower priority and no condition"
    ]


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("document.typ == 'pdf'", "undefined field 'typ'"),
        ("document.type ==", "does not compile"),
        ("document.type", "must be true or false"),
        ("docment.type == 'pdf'", "undeclared reference to 'docment.type'"),
        ("document.body == b'x'", "document.body_size"),
        ("stream.document.type == 'pdf'", "ask for `document`"),
        ("", "does not compile"),
    ],
)
def test_a_condition_that_cannot_be_asked_is_found_when_the_graph_is_loaded(condition, problem):
    assert problem in said(one_node(when=condition))[0]
    edge = Edge(source="a", target="b", when=condition)
    assert problem in said(graph_of("a b", edges=(edge,)))[0]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"dlq": DlqSettings(max_retries=0)}, "1 means no retry"),
        ({"dlq": DlqSettings(max_retries=-1)}, "out of bounds"),
        ({"dlq": DlqSettings(initial_backoff=-1.0)}, "out of bounds"),
        ({"dlq": DlqSettings(initial_backoff=60.0)}, "less than initial_backoff"),
        ({"dlq": DlqSettings(backoff_multiplier=0.5)}, "out of bounds"),
        ({"dlq": DlqSettings(max_backoff=float("nan"))}, "out of bounds"),
        ({"dlq": DlqSettings(max_reprocess_count=-1)}, "out of bounds"),
        ({"dlq": DlqSettings(include_payload=False)}, "documents.url"),
        ({"dlq": DlqSettings(enabled=False)}, "dropped"),
        ({"dlq": DlqSettings(topic_override="a b")}, "Kafka allows no topic"),
        ({"timeout": 0.0}, "out of bounds"),
        ({"concurrency": 0}, "out of bounds"),
        ({"partitions": 0}, "out of bounds"),
        ({"max_message_bytes": 2**40}, "out of bounds"),
        ({"breaker": NodeBreaker(failures=0)}, "out of bounds"),
        ({"tls": Tls(key="k.pem")}, "go together"),
        ({"retry_codes": ("UNAVAILABEL",)}, "did you mean UNAVAILABLE"),
        ({"module": "http://h:1"}, "leave out 'http://'"),
        ({"module": "embedder"}, "has no port"),
        ({"input": "x" * 250}, "Kafka allows no topic"),
        ({"id": "a/b"}, "use letters"),
    ],
)
def test_what_makes_no_sense_in_a_node_is_a_problem(keys, problem):
    found = said(one_node(**keys))
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize("module", ["localhost:50051", "dns:///embedder:50051", "unix:/run/m.sock", "ipv6:[::1]:1"])
def test_addresses_that_grpc_knows_are_right(module):
    assert said(one_node(module=module)) == []


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"env": "pr od"}, "use letters"),
        ({"nodes": ()}, "at least one"),
        ({"hop_limit": 0}, "out of bounds"),
        ({"partitions": 0}, "out of bounds"),
        ({"documents": DocumentStorage(url="/var/lib")}, "must be a URL"),
        ({"documents": DocumentStorage(url="file:///x", keep_days=-1)}, "out of bounds"),
    ],
)
def test_what_makes_no_sense_in_a_graph_is_a_problem(keys, problem):
    found = said(graph_of(**keys))
    assert len(found) == 1
    assert problem in found[0]
