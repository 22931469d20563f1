"""What Prometheus sees of a pipeline."""

from __future__ import annotations

import asyncio
import urllib.request
from dataclasses import replace

import grpc
import pytest
from prometheus_client import CollectorRegistry
from tests.servers.ports import free_port
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive.engine.clock import SystemClock, unix_ms
from redrive.sources.pipeline.admin.admin_desk import AdminDesk
from redrive.sources.pipeline.admin.depths import NodeDepths
from redrive.sources.pipeline.admin.lanes import processed
from redrive.sources.pipeline.admin.signals.depth_watch import DepthWatch
from redrive.sources.pipeline.admin.signals.metrics import calls, depth_readings, latency
from redrive.sources.pipeline.admin.signals.prometheus import PipelineCollector, serving_metrics
from redrive.sources.pipeline.engine.counts import LATENCY_BOUNDS, MinuteRate, NodeCounts
from redrive.sources.pipeline.protos.admin_pb2 import ListNodesRequest
from redrive.sources.pipeline.protos.module_pb2 import OUTCOME_FAILURE, ProcessDataResponse

SECRET = b"the body of a document"
CODES = {"doc-1": grpc.StatusCode.UNAVAILABLE, "doc-2": grpc.StatusCode.INVALID_ARGUMENT}


async def picky(request, context):
    """Answer doc-0 well, doc-1 never, doc-2 with a refusal, doc-3 with a logical failure."""
    if code := CODES.get(request.document.doc_id):
        await context.abort(code, "it said " + SECRET.decode())
    if request.document.doc_id == "doc-3":
        return ProcessDataResponse(outcome=OUTCOME_FAILURE, error_message=SECRET.decode())
    return passed_on(request)


def scraped(registry, env, name, **labels):
    return registry.get_sample_value(f"redrive_pipeline_{name}", {"env": env, **labels})


async def test_every_way_that_a_document_takes_is_counted_at_its_node(scene):
    async with serving(picky) as module:
        graph = scene.graph(
            {"id": "parse", "module": module.target}, {"id": "index", "module": module.target},
            edges=[("parse", "index")],
        )  # fmt: skip
        pipeline, registry = scene.pipeline(graph), CollectorRegistry()
        depths = DepthWatch(pipeline, SystemClock())
        registry.register(PipelineCollector(pipeline, depths))
        async with running(pipeline), serving_metrics(pipeline, port=0) as page:
            scene.send(graph, 4, body=SECRET)
            await until(lambda: scene.committed("parse") == 4 and scene.committed("index") == 2)
            await depths.look()
            desk = AdminDesk(lambda: graph, pipeline.kafka, engine=pipeline)
            [seen] = (await desk.list_nodes(ListNodesRequest(node_ids=["parse"]))).nodes
            url = f"http://127.0.0.1:{page.port}/metrics"
            with await asyncio.to_thread(urllib.request.urlopen, url) as answer:
                served = answer.read()

    assert (seen.documents_in, seen.in_flight, seen.last_error_type in {"UNAVAILABLE", "INVALID_ARGUMENT"}) == (
        4,
        0,
        True,
    )
    assert (seen.rate > 0, seen.HasField("p50"), seen.p99.ToNanoseconds() >= seen.p50.ToNanoseconds()) == (True,) * 3

    def parse(name, **more):
        return scraped(registry, scene.env, name, node="parse", **more)

    assert (parse("in_total"), parse("out_total", edge=graph.edges[0].id)) == (4, 2)
    assert (parse("retries_total"), parse("failures_total")) == (2, 1)
    assert (parse("dlq_total"), parse("quarantined_total"), parse("dropped_total")) == (1, 1, 0)
    assert (parse("errors_total", error_type="UNAVAILABLE"), parse("held")) == (3, 0)
    assert [parse("calls_bucket", le=bound) for bound in ("1.0", "2.0", "3.0", "+Inf")] == [3, 3, 4, 4]
    assert (parse("calls_sum"), parse("module_seconds_count")) == (6, 6)
    assert (parse("depth"), parse("dlq_depth"), parse("quarantine_depth")) == (0, 1, 1)
    assert 0 < parse("dlq_age_seconds") < 60
    assert scraped(registry, scene.env, "ended_total", node="index") == 2
    assert scraped(registry, scene.env, "dlq_age_seconds", node="index") == 0
    assert b"redrive_pipeline_in_total{" in served
    assert SECRET not in served
    assert b"stream-" not in served


async def test_depths_are_unknown_and_not_zero_while_the_broker_does_not_answer(scene, monkeypatch):
    monkeypatch.setattr(processed, "REQUEST", 0.2)  # seconds
    graph = scene.graph({"id": "parse", "module": "127.0.0.1:1"})
    pipeline = scene.pipeline(graph)
    watch = DepthWatch(pipeline, SystemClock())
    watch.seen = {"parse": NodeDepths(node="parse", dlq_depth=3)}
    pipeline.kafka = replace(pipeline.kafka, bootstrap_servers=f"127.0.0.1:{free_port()}")
    await watch.look()
    assert watch.seen == {}


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.002, 59.0, 60.0, 61.0])
def test_a_call_is_in_every_bucket_that_is_as_long_as_it_took(seconds):
    counts = NodeCounts()
    counts.called(seconds)
    buckets, total = latency(counts)
    within = [float(seconds <= bound) for bound in LATENCY_BOUNDS]
    assert ([n for _, n in buckets], total) == ([*within, 1.0], seconds)


def test_a_rate_is_that_of_the_last_minute_or_since_the_first_time():
    rate = MinuteRate()
    assert rate.a_second(0.0) == 0.0
    for tenth in range(100):
        rate.note(5.0 + tenth / 10)
    assert rate.a_second(15.0) == 10.0
    assert rate.a_second(64.9) == pytest.approx(100 / 59.9)
    assert rate.a_second(70.0) == pytest.approx(40 / 60)
    assert rate.a_second(200.0) == 0.0


def test_half_of_the_calls_ended_within_the_bound_of_their_bucket():
    counts = NodeCounts()
    assert counts.within(0.5) is None
    for seconds in (0.002, 0.003, 0.004, 3.0):
        counts.called(seconds)
    assert (counts.within(0.5), counts.within(0.99)) == (0.005, 5.0)
    counts.called(1e6)
    assert counts.within(0.999) == LATENCY_BOUNDS[-1]


def test_more_calls_than_the_last_bound_are_counted_all_the_same():
    counts = NodeCounts()
    counts.calls.update({1: 5, 12: 1})
    assert calls(counts) == ([("1.0", 5), ("2.0", 5), ("3.0", 5), ("5.0", 5), ("10.0", 5), ("+Inf", 6)], 17)


def test_an_age_is_never_negative_when_a_clock_jumped():
    now = unix_ms() / 1000
    found = {
        each.metric: each.amount for each in depth_readings("dev", NodeDepths(node="a", oldest_failed_at=now), now - 9)
    }
    assert found["redrive_pipeline_dlq_age_seconds"] == 0
