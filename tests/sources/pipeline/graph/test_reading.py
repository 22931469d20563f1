"""Graphs in YAML and JSON: what a user writes, and that no text gets anything but our own sentences."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redrive.errors import SettingsError
from redrive.sources.pipeline.graph.model import Edge, NodeBreaker
from redrive.sources.pipeline.graph.reading import examine, examine_values, load_graph, parse

GRAPH = """
env: prod
nodes:
  - id: parse
    module: "localhost:50051"
    dlq: {max_retries: 3, initial_backoff: 1s, max_backoff: 30s, backoff_multiplier: 2}
  - {id: embed, module: "dns:///embedder:50051", when: 'document.type == "pdf"'}
  - {id: index, module: "localhost:50053", output: docs.indexed}
edges: [{from: parse, to: embed}, {from: embed, to: index}]
"""


def test_the_documented_graph_is_read():
    graph = parse(GRAPH)
    assert [node.id for node in graph.nodes] == ["parse", "embed", "index"]
    assert graph.edges == (Edge(source="parse", target="embed"), Edge(source="embed", target="index"))
    assert (graph.by_id["parse"].dlq.initial_backoff, graph.by_id["parse"].dlq.max_backoff) == (1, 30)
    assert examine(GRAPH).problems == []


def test_json_is_read_as_yaml_is():
    assert parse(json.dumps(yaml.safe_load(GRAPH))) == parse(GRAPH)


def test_the_version_changes_with_the_graph_unless_the_graph_names_one():
    assert parse(GRAPH).version == parse(GRAPH + "\n# a comment").version
    assert parse(GRAPH).version != parse(GRAPH.replace("3,", "4,")).version
    assert parse(GRAPH + "version: 7").version == 7


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("2m", 120), ("1.5s", 1.5), ("7", 7), ("1h", 3600)])
def test_a_time_may_have_a_unit(text, seconds):
    graph = parse(f"{{env: e, nodes: [{{id: a, module: 'h:1', timeout: {text}, breaker: {{open_for: {text}}}}}]}}")
    assert graph.nodes[0].timeout == seconds
    assert graph.nodes[0].breaker == NodeBreaker(open_for=seconds)


def test_every_wrong_key_is_reported_at_once_with_its_node_and_the_way_out():
    problems = examine("""
env: prod
nodez: []
nodes:
  - {id: a, module: "h:1", dlq: {max_backof: 3s, initial_backoff: soon}}
  - {id: b, condition: "true", concurrency: many}
  - 7
edges: [{from: a, to: b, transport: http}]
""").problems
    said = [str(problem) for problem in problems]
    assert said == [
        "node a, dlq.max_backof: there is no such key; did you mean max_backoff?",
        "node a, dlq.initial_backoff: 'soon' is no time; write 30s, 500ms, 2m or seconds",
        "node b, condition: there is no such key; write when",
        "node b, concurrency: Expected `int`, got `str`; it is 'many'",
        "node b, module: it is missing",
        "node 3: it must be a mapping of keys, and is 7",
        "edge a->b, transport: Invalid enum value 'http'; it is 'http'",
        "graph, nodez: there is no such key; did you mean nodes?",
    ]


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(SettingsError, match="cannot read the graph"):
        load_graph(tmp_path / "no.yaml")


def test_the_error_of_a_file_names_it_with_every_problem(tmp_path):
    path = tmp_path / "graph.yaml"
    path.write_text("env: e\nnodes: [{id: a, module: h}, {id: a, module: 'h:1'}]")
    with pytest.raises(SettingsError) as refused:
        load_graph(path)
    assert len(refused.value.problems) == 2
    assert all(problem.startswith(str(path)) for problem in refused.value.problems)


def test_aliases_that_grow_beyond_measure_are_refused():
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12))
    assert "aliases" in str(examine(f"l0: &l0 [x]\n{levels}").problems[0])


def test_an_alias_shares_settings_between_nodes():
    graph = parse("env: e\nnodes: [{id: a, module: 'h:1', dlq: &d {max_retries: 5}}, {id: b, module: 'h:2', dlq: *d}]")
    assert [node.dlq.max_retries for node in graph.nodes] == [5, 5]


@pytest.mark.parametrize(
    "text",
    [
        "&a [*a]",
        "a: &a {b: *a}",
        "[" * 400,
        "{" * 400,
        "!!python/object/apply:os.system [ls]",
        "a: 1\na: 2",
        "env: 2001-99-99",
        "env: 0x" + "f" * 5000,
        "env: " + "9" * 5000,
        "timeout: .inf\nnodes: [{id: a, module: 'h:1', timeout: .nan}]",
        "? [a, b]\n: 1",
        "? {a: b}\n: 1",
        "\x00",
        "\ud800",
        "<<: 1",
        "a: !!int x",
        "a: !!timestamp x",
        "--- 1\n--- 2",
        "%YAML 9.9\n---\na: 1",
        "a: !!binary ü",
        "nodes: {a: b}",
        "nodes: [[], {}, null]\nedges: 5",
        "",
        "null",
        "x" * 3_000_000,
    ],
    ids=range(25),
)
def test_a_hostile_text_gets_problems_and_nothing_else(text):
    examined = examine(text)
    assert examined.graph is None
    assert all(len(str(problem)) < 1000 for problem in examined.problems)
    assert examined.problems


WORDS = """env nodes edges id module when input output dlq timeout retry_codes concurrency breaker tls config from to
priority max_hops transport hop_limit entry documents url keep_days failures open_for max_retries version partitions"""
KEYS = st.sampled_from(WORDS.split())
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates(), st.binary(max_size=4),
    st.sampled_from(["a", "b", "h:1", "1s", "document.type == 'x'", "true", "grpc"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | SCALARS.map(str), inner, max_size=6),
    max_leaves=12,
)
NODES = st.lists(st.dictionaries(KEYS, VALUES, max_size=6) | VALUES, max_size=4)
GRAPHS = st.fixed_dictionaries({"env": VALUES, "nodes": NODES | VALUES}, optional={"edges": NODES | VALUES})


@pytest.mark.parametrize("key", ["id", "module", "when", "timeout", "retry_codes", "input", "\ud800"])
def test_half_a_character_is_a_problem(key):
    examined = examine_values({"env": "a", "nodes": [{"id": "a", "module": "h:1", key: "2 \ud800"}]})
    assert examined.graph is None
    assert ["surrogate" in str(problem) for problem in examined.problems] == [True]


@settings(max_examples=60, deadline=None)
@given(GRAPHS | VALUES)
@example({"env": "\ud800", "nodes": []})
def test_no_values_raise(values):
    examine_values(values)


@settings(max_examples=60, deadline=None)
@given(st.text() | VALUES.map(lambda values: yaml.dump(values, allow_unicode=True)))
def test_no_text_raises(text):
    examine(text)
