"""Documents that a node begins again are counted, and nothing else is."""

from __future__ import annotations

import grpc
import pytest
from prometheus_client import CollectorRegistry
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive.sources.pipeline.admin.admin_desk import AdminDesk
from redrive.sources.pipeline.admin.signals.prometheus import PipelineCollector
from redrive.sources.pipeline.engine import gate
from redrive.sources.pipeline.engine.repeats import RecentSteps
from redrive.sources.pipeline.protos.admin_pb2 import ListNodesRequest
from redrive.sources.pipeline.protos.document_pb2 import PipeStream


def stream(**options):
    return PipeStream(**{"stream_id": "s", "branch": "1of2", "hop_count": 2, **options})


@pytest.mark.parametrize("change", [{"stream_id": "t"}, {"branch": "2of2"}, {"hop_count": 3}, {"replay_id": "0@7"}])
def test_another_stream_branch_hop_or_replay_is_no_repeat(change):
    recent = RecentSteps()
    assert [recent.is_repeat(each) for each in (stream(), stream(**change), stream())] == [False, False, True]


def test_what_a_node_began_long_ago_is_forgotten():
    recent = RecentSteps(most=2)
    repeats = [at for at, name in enumerate("abcadeab") if recent.is_repeat(stream(stream_id=name))]
    assert repeats == [3, 6]


async def test_a_document_that_a_killed_engine_sent_twice_is_counted_at_each_node_it_comes_to_twice(scene):
    async with serving() as module:
        graph = scene.graph(
            {"id": "parse", "module": module.target}, {"id": "embed", "module": module.target},
            {"id": "index", "module": module.target},
            edges=[("parse", "embed", {"transport": "grpc"}), ("embed", "index")],
        )  # fmt: skip
        pipeline, registry = scene.pipeline(graph), CollectorRegistry()
        registry.register(PipelineCollector(pipeline))
        async with running(pipeline):
            scene.send(graph, 3)
            scene.send(graph, 1)
            await until(lambda: len(scene.done()) == 4)
            desk = AdminDesk(lambda: graph, pipeline.kafka, engine=pipeline)
            shown = (await desk.list_nodes(ListNodesRequest())).nodes
    assert {each.node_id: each.repeats for each in shown} == {"parse": 1, "embed": 1, "index": 1}
    labels = {"env": scene.env, "node": "index"}
    assert registry.get_sample_value("redrive_pipeline_repeats_total", labels) == 1


async def test_a_document_that_is_called_again_or_waits_at_a_held_node_is_no_repeat(scene, monkeypatch):
    monkeypatch.setattr(gate, "TRY_AGAIN", 0.01)
    codes = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE]

    async def moody(request, context):
        if codes:
            await context.abort(codes.pop(0), "not now")
        return passed_on(request)

    async with serving(moody) as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            scene.send(graph)
            await until(lambda: len(scene.done()) == 1)
    assert (len(module.calls), pipeline.counts["parse"].repeated) == (4, 0)
