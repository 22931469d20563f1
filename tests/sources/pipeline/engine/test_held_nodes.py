"""Nodes that stand still, with a real broker and a real module."""

from __future__ import annotations

import grpc
import pytest
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive.sources.pipeline.admin.admin_desk import AdminDesk
from redrive.sources.pipeline.engine import gate
from redrive.sources.pipeline.protos import admin_pb2 as messages


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(gate, "TRY_AGAIN", 0.05)


@pytest.mark.parametrize("code", [grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED])
async def test_a_held_node_moves_nothing_says_why_and_goes_on_by_itself(scene, code):
    allowed = False

    async def script(request, context):
        if not allowed:
            await context.abort(code, "no token")
        return passed_on(request)

    async with serving(script) as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            scene.send(graph, 20)
            await until(lambda: len(module.calls) > 5)
            assert pipeline.health["parse"].status == "red"
            assert code.name in pipeline.health["parse"].reasons[0]
            desk = AdminDesk(lambda: graph, scene.kafka(), engine=pipeline)
            [shown] = (await desk.list_nodes(messages.ListNodesRequest())).nodes
            assert (shown.state, shown.reason, shown.depth) == (messages.NODE_STATE_HELD, f"{code.name}: no token", 20)
            assert scene.committed("parse") == 0
            assert scene.done() == scene.dead("parse") == scene.quarantined("parse") == []
            allowed = True
            await until(lambda: scene.committed("parse") == 20)
            assert not pipeline.gate("parse").is_shut
    assert len(scene.done()) == 20


async def test_a_node_whose_documents_all_go_to_quarantine_is_held(scene):
    broken = True

    async def script(request, context):
        if broken:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a new version reads nothing")
        return passed_on(request)

    async with serving(script) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "concurrency": 1})
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            scene.send(graph, 100)
            await until(lambda: pipeline.gate("parse").is_shut and len(module.calls) > 15)
            assert len(scene.quarantined("parse")) == 10
            broken = False
            await until(lambda: scene.committed("parse") == 100)
    assert len(scene.quarantined("parse")) == 10
    assert len(scene.done()) == 90


@pytest.mark.parametrize("breaker", [None, {"failures": 5, "open_for": 0.05}])
async def test_a_breaker_keeps_documents_in_their_topic_and_without_one_they_go_to_the_dlq(scene, breaker):
    healthy = False

    async def script(request, context):
        if not healthy:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "down")
        return passed_on(request)

    node = {"id": "parse", "dlq": {"max_retries": 2}, "concurrency": 4, "breaker": breaker}
    async with serving(script) as module:
        graph = scene.graph({**node, "module": module.target})
        async with running(scene.pipeline(graph)):
            scene.send(graph, 100)
            if breaker is None:
                await until(lambda: scene.committed("parse") == 100)
                assert len(scene.dead("parse")) == 100
                return
            await until(lambda: len(module.calls) > 30)
            assert len(scene.dead("parse")) <= 16  # those that were under way when it opened
            healthy = True
            await until(lambda: scene.committed("parse") == 100)
    assert len(scene.done()) + len(scene.dead("parse")) == 100
    assert len(scene.done()) >= 84


async def test_an_engine_that_stops_while_a_node_is_held_leaves_its_documents_to_the_next(scene):
    allowed = False

    async def script(request, context):
        if not allowed:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")
        return passed_on(request)

    async with serving(script) as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        first = scene.pipeline(graph)
        async with running(first):
            scene.send(graph, 5)
            await until(lambda: first.gate("parse").waiting == 5)
        allowed = True
        async with running(scene.pipeline(graph)):
            await until(lambda: scene.committed("parse") == 5)
    assert sorted(done.stream_id for done in scene.done()) == [f"stream-{n}" for n in range(5)]
