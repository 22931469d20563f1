"""What a graph means when it says nothing, and the names of its topics."""

from __future__ import annotations

from redrive.sources.pipeline import Edge, Graph, Node
from redrive.sources.pipeline.graph import names
from redrive.sources.pipeline.graph.model import DlqSettings

PARSE = Node(id="parse", module="localhost:50051")
EMBED = Node(id="embed", module="localhost:50052", input="docs.parsed", dlq=DlqSettings(topic_override="broken"))
GRAPH = Graph(env="prod", nodes=(PARSE, EMBED), edges=(Edge(source="parse", target="embed"),))


def test_a_node_that_says_nothing_has_the_documented_defaults():
    dlq = PARSE.dlq
    assert (dlq.enabled, dlq.include_payload, dlq.max_retries) == (True, True, 3)
    assert (dlq.initial_backoff, dlq.max_backoff, dlq.backoff_multiplier, dlq.jitter) == (1, 30, 2, "full")
    assert (dlq.max_reprocess_count, PARSE.timeout, PARSE.breaker) == (3, 30, None)
    assert {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED"} < set(PARSE.retry_codes)


def test_max_retries_counts_calls_and_waits_double_up_to_the_cap():
    policy = DlqSettings(max_retries=9, jitter="none").policy
    assert policy.max_attempts == 9
    assert [policy.delay(attempt, 0.5) for attempt in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]


def test_waits_are_drawn_between_nothing_and_the_computed_time_unless_the_node_wants_none_of_that():
    policy = DlqSettings().policy
    assert [policy.delay(2, draw) for draw in (0.0, 0.5, 1.0)] == [0, 1, 2]
    assert {DlqSettings(jitter="none").policy.delay(2, draw) for draw in (0.0, 0.5, 1.0)} == {2}


def test_topics_are_named_after_environment_and_node():
    assert names.input_topic(GRAPH, PARSE) == "in.prod.parse"
    assert names.dlq_topic(GRAPH, PARSE) == "dlq.prod.parse"
    assert names.quarantine_topic(GRAPH, PARSE) == "quarantine.prod.parse"
    assert names.done_topic(GRAPH) == "done.prod"


def test_a_node_may_name_its_topics():
    assert names.input_topic(GRAPH, EMBED) == "docs.parsed"
    assert names.dlq_topic(GRAPH, EMBED) == "broken"


def test_new_documents_enter_at_the_node_that_no_edge_leads_to():
    assert GRAPH.entries == (PARSE,)


def test_edges_of_a_node_are_in_the_order_of_their_priority():
    last, first = Edge(source="parse", target="parse", priority=5), Edge(source="parse", target="embed", priority=1)
    graph = Graph(env="prod", nodes=(PARSE, EMBED), edges=(last, first))
    assert graph.outgoing == {"parse": (first, last), "embed": ()}
