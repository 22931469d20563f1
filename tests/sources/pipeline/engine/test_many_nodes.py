"""Several nodes: edges, fan-out, the end, hop limits, direct edges, several engines."""

from __future__ import annotations

from collections import Counter

import grpc
import pytest
from tests.sources.pipeline.engine.test_one_node import refusing
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive.errors import SourceError
from redrive.sources.pipeline.protos import document_pb2 as docs
from redrive.sources.pipeline.protos.module_pb2 import ProcessDataResponse


@pytest.mark.parametrize("transport", ["kafka", "grpc"])
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_document_visits_the_nodes_in_order_and_its_history_is_complete(scene, transport, exactly_once):
    async with serving() as module:
        nodes = [{"id": name, "module": module.target} for name in ("parse", "embed", "index")]
        way = {"transport": transport}
        graph = scene.graph(*nodes, edges=[("parse", "embed", way), ("embed", "index", way)])
        async with running(scene.pipeline(graph, exactly_once=exactly_once)):
            scene.send(graph, 3)
            await until(lambda: len(scene.done()) == 3)
    for done in scene.done():
        assert list(done.processing_path) == ["parse", "embed", "index"]
        assert [(step.node_id, step.hop_number) for step in done.history] == [("parse", 1), ("embed", 2), ("index", 3)]
        assert done.branch == ""


async def test_the_nodes_of_an_engine_with_a_transactional_id_of_its_own_do_not_fence_each_other(scene):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target}, {"id": "index", "module": module.target},
                            edges=[("parse", "index")])  # fmt: skip
        pipeline = scene.pipeline(graph, exactly_once=True, transactional_id=f"engine-1-{scene.env}")
        async with running(pipeline):
            await until(lambda: all(run.consumer.assigned == 2 for run in pipeline._runs.values()))
            scene.send(graph, 3)
            await until(lambda: len(scene.done()) == 3)
            assert [run.consumer.counts.commit_failures for run in pipeline._runs.values()] == [0, 0]


@pytest.mark.parametrize("transport", ["kafka", "grpc"])
async def test_each_branch_of_a_fan_out_is_on_its_own(scene, transport):
    async with serving(content, refusing(grpc.StatusCode.UNAVAILABLE)) as (good, bad):
        nodes = [{"id": "parse", "module": good.target}, {"id": "left", "module": good.target},
                 {"id": "right", "module": bad.target}]  # fmt: skip
        way = {"transport": transport}
        graph = scene.graph(*nodes, edges=[("parse", "left", way), ("parse", "right", way)])
        async with running(scene.pipeline(graph)):
            scene.send(graph, 4)
            await until(lambda: len(scene.done()) == 4 and len(scene.dead("right")) == 4)
            await until(lambda: scene.committed("parse") == 4)
    assert {done.branch for done in scene.done()} == {"1of2"}
    assert {letter.stream.branch for letter in scene.dead("right")} == {"2of2"}
    assert Counter(call.metadata.pipe_step_name for call in good.calls) == {"parse": 4, "left": 4}
    assert {letter.retry_count for letter in scene.dead("right")} == {3}


def content(request, _context):
    return passed_on(request)


async def test_a_document_that_came_by_grpc_and_fails_has_no_offset_and_replays_into_the_nodes_topic(scene):
    async with serving(content, refusing(grpc.StatusCode.UNAVAILABLE, times=3)) as (good, bad):
        nodes = [{"id": "parse", "module": good.target}, {"id": "embed", "module": bad.target}]
        graph = scene.graph(*nodes, edges=[("parse", "embed", {"transport": "grpc"})])
        async with running(scene.pipeline(graph)):
            scene.send(graph, body=b"kept")
            await until(lambda: len(scene.dead("embed")) == 1)
            await until(lambda: scene.committed("parse") == 1)
            [letter] = scene.dead("embed")
            assert not letter.HasField("original_topic")
            assert not letter.HasField("original_offset")
            assert (letter.failed_node_id, letter.retry_count) == ("embed", 3)
            assert letter.stream.document.body == b"kept"
            scene.put([letter.stream], f"in.{scene.env}.embed")  # as a replay does
            await until(lambda: len(scene.done()) == 1)
    [done] = scene.done()
    assert [step.node_id for step in done.history] == ["parse", "embed"]


async def test_a_cycle_ends_at_its_hop_limit(scene):
    async with serving() as module:
        nodes = [{"id": name, "module": module.target} for name in ("ping", "pong")]
        edges = [("ping", "pong"), ("pong", "ping", {"max_hops": 4})]
        graph = scene.graph(*nodes, edges=edges, entry="ping")
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: len(scene.done()) == 1)
    assert list(scene.done()[0].processing_path) == ["ping", "pong"] * 3


async def test_of_the_edges_that_hold_the_lowest_priority_gets_the_document(scene):
    async with serving() as module:
        nodes = [{"id": name, "module": module.target} for name in ("parse", "first", "second")]
        edges = [("parse", "second", {"priority": 2}), ("parse", "first", {"priority": 1})]
        graph = scene.graph(*nodes, edges=edges)
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: len(scene.done()) == 1)
    assert list(scene.done()[0].processing_path) == ["parse", "first"]


async def test_two_engines_share_a_graph_and_lose_nothing_when_one_leaves(scene):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target}, {"id": "index", "module": module.target},
                            edges=[("parse", "index")], partitions=4)  # fmt: skip
        async with running(scene.pipeline(graph)):
            second = scene.pipeline(graph)
            async with running(second):
                await until(lambda: all(run.consumer.assigned == 2 for run in second._runs.values()))
                scene.send(graph, 100)
                await until(lambda: len(scene.done()) > 20)
            await until(lambda: len({done.stream_id for done in scene.done()}) == 100)
    history = {tuple(step.node_id for step in done.history) for done in scene.done()}
    assert history == {("parse", "index")}


async def test_missing_topics_are_created_unless_the_graph_says_not_to(scene):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target}, create_topics=False)
        with pytest.raises(SourceError, match=f"in.{scene.env}.parse.*create_topics"):
            await scene.pipeline(graph).run()
        graph = scene.graph({"id": "parse", "module": module.target, "partitions": 3})
        async with running(scene.pipeline(graph)):
            pass
    scene.stage.await_topics(f"quarantine.{scene.env}.parse", f"done.{scene.env}", f"dlq.{scene.env}.parse")
    assert len(scene.stage.topics()[f"in.{scene.env}.parse"].partitions) == 3


async def test_a_logical_failure_goes_on_to_the_next_node_with_its_error_in_the_history(scene):
    def refuses(_request, _context):
        return ProcessDataResponse(success=False, error_message="invalid PDF format", error_code="PDF")

    async with serving(refuses, content) as (bad, good):
        graph = scene.graph({"id": "parse", "module": bad.target}, {"id": "index", "module": good.target},
                            edges=[("parse", "index")])  # fmt: skip
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: len(scene.done()) == 1)
    [done] = scene.done()
    assert [step.status for step in done.history] == [docs.STEP_STATUS_FAILURE, docs.STEP_STATUS_SUCCESS]
    error = done.history[0].error_info
    assert (error.error_message, error.error_code, error.originating_node_id) == ("invalid PDF format", "PDF", "parse")
    assert done.outcome == docs.DOCUMENT_OUTCOME_WITH_FAILURES
    assert scene.dead("parse") == []
