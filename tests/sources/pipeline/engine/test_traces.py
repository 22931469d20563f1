"""A document on its way through a graph, seen by OpenTelemetry."""

from __future__ import annotations

import grpc
import pytest
from tests.signals.otel.seen import Seen, is_child, traceparent
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive.sources.pipeline.admin.admin_desk import AdminDesk
from redrive.sources.pipeline.engine.pipeline import Pipeline
from redrive.sources.pipeline.protos.admin_pb2 import LetterFilter, ReplayRequest
from redrive.sources.pipeline.protos.document_pb2 import PipeDoc, PipeStream
from redrive.stores.memory import MemoryStore

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BODY = "the body of a document"


async def away(request, context):
    await context.abort(grpc.StatusCode.UNAVAILABLE, BODY)


def content(request, _context):
    return passed_on(request)


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])
async def test_a_document_is_one_trace_through_every_node_to_its_dead_letter(scene, exactly_once):
    seen = Seen()
    async with serving(content, away) as (good, bad):
        graph = scene.graph(
            {"id": "parse", "module": good.target}, {"id": "embed", "module": bad.target, "dlq": {"max_retries": 2}},
            edges=[("parse", "embed")],
        )  # fmt: skip
        pipeline = Pipeline(graph, scene.kafka(), exactly_once=exactly_once, tracing=seen.tracing)
        async with running(pipeline):
            scene.send(graph, body=BODY.encode())
            await until(lambda: len(scene.dead("embed")) == 1)
    [first] = seen.spans(f"handle in.{scene.env}.parse")
    tries = seen.spans(f"handle in.{scene.env}.embed")
    assert first.parent is None
    assert [span.attributes["redrive.attempt"] for span in tries] == [1, 2]
    assert all(is_child(span, first) for span in tries)
    [dead] = scene.messages(f"dlq.{scene.env}.embed")
    trace_id = f"{first.get_span_context().trace_id:032x}"
    assert dict(dead.headers())["traceparent"].decode().split("-")[1] == trace_id
    assert BODY not in seen.all_text()


async def test_messages_of_a_pipeline_without_a_tracer_have_no_trace(scene):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        async with running(Pipeline(graph, scene.kafka(), tracing=False)):
            scene.send(graph)
            await until(lambda: len(scene.done()) == 1)
    [done] = scene.messages(f"done.{scene.env}")
    assert done.headers() is None


def hearing(told, script=content):
    """Answer as *script* does, and note which trace the engine told the module of."""

    def heard(request, context):
        told.append(dict(context.invocation_metadata()).get("traceparent"))
        return script(request, context)

    return heard


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])
async def test_modules_are_told_of_the_trace_and_direct_edges_belong_to_it(scene, exactly_once):
    seen, first, second, third = Seen(), [], [], []
    async with serving(hearing(first), hearing(second), hearing(third, away)) as (parse, embed, index):
        graph = scene.graph(
            {"id": "parse", "module": parse.target}, {"id": "embed", "module": embed.target},
            {"id": "index", "module": index.target, "dlq": {"max_retries": 1}},
            edges=[("parse", "embed", {"transport": "grpc"}), ("embed", "index")],
        )  # fmt: skip
        async with running(Pipeline(graph, scene.kafka(), exactly_once=exactly_once, tracing=seen.tracing)):
            scene.send(graph, body=BODY.encode())
            await until(lambda: len(scene.dead("index")) == 1)
    handled, step = seen.one(f"handle in.{scene.env}.parse"), seen.one("step embed")
    after = seen.one(f"handle in.{scene.env}.index")
    assert is_child(step, handled)
    assert is_child(after, step)
    assert dict(step.attributes) == {"redrive.node": "embed", "redrive.attempt": 1}
    assert [first, second, third] == [[traceparent(span)] for span in (handled, step, after)]
    assert BODY not in seen.all_text()


async def test_every_try_behind_a_direct_edge_has_a_span(scene):
    seen = Seen()
    async with serving(content, away) as (parse, embed):
        graph = scene.graph(
            {"id": "parse", "module": parse.target}, {"id": "embed", "module": embed.target, "dlq": {"max_retries": 2}},
            edges=[("parse", "embed", {"transport": "grpc"})],
        )  # fmt: skip
        async with running(Pipeline(graph, scene.kafka(), tracing=seen.tracing)):
            scene.send(graph)
            await until(lambda: len(scene.dead("embed")) == 1)
    steps, handled = seen.spans("step embed"), seen.one(f"handle in.{scene.env}.parse")
    assert [span.attributes["redrive.attempt"] for span in steps] == [1, 2]
    assert all(is_child(span, handled) and span.attributes["error.type"] == "StepFailed" for span in steps)
    [dead] = scene.messages(f"dlq.{scene.env}.embed")
    assert dict(dead.headers())["traceparent"].decode() == traceparent(handled)


async def test_an_engine_without_a_tracer_passes_the_documents_trace_on(scene):
    told = []
    async with serving(hearing(told)) as module:
        nodes = [{"id": name, "module": module.target} for name in ("parse", "embed", "index")]
        graph = scene.graph(*nodes, edges=[("parse", "embed", {"transport": "grpc"}), ("embed", "index")])
        pipeline = Pipeline(graph, scene.kafka(), tracing=False)
        async with running(pipeline):
            await until(lambda: pipeline._arrivals is not None)
            await pipeline.submit(PipeDoc(doc_id="d1"), trace={"traceparent": PARENT})
            await until(lambda: len(scene.done()) == 1)
    assert told == [PARENT] * 3


async def test_a_replayed_document_goes_on_in_its_trace(scene):
    store, told = MemoryStore(), []
    await store.open()
    async with serving(hearing(told, away)) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "dlq": {"max_retries": 1}})
        pipeline = Pipeline(graph, scene.kafka(), tracing=False)
        async with running(pipeline):
            await until(lambda: pipeline._arrivals is not None)
            await pipeline.process(PipeStream(stream_id="s1"), "parse", trace={"traceparent": PARENT})
            desk = AdminDesk(lambda: graph, scene.kafka(), store=store)
            wanted = ReplayRequest(node_id="parse", filter=LetterFilter(all=True))
            assert [each.sent async for each in desk.replay(wanted)][-1] == 1
            await until(lambda: len(scene.dead("parse")) == 2)
    await store.close()
    assert told == [PARENT, PARENT]


async def test_a_document_that_a_caller_hands_over_continues_the_callers_trace(scene):
    seen = Seen()
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        pipeline = Pipeline(graph, scene.kafka(), tracing=seen.tracing)
        async with running(pipeline):
            await until(lambda: pipeline._arrivals is not None)
            await pipeline.process(PipeStream(stream_id="s1"), "parse", trace={"traceparent": PARENT})
    step = seen.one("step parse")
    assert f"{step.parent.trace_id:032x}-{step.parent.span_id:016x}" == PARENT[3:-3]
