"""Documents that come by gRPC: a real engine, broker, module and client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import msgspec
import pytest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from tests.servers.ports import free_port
from tests.sources.kafka.stage import LIMIT
from tests.sources.pipeline.documents.test_repository import KEYS
from tests.sources.pipeline.engine.test_one_node import refusing
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive.sources.pipeline.admin.admin_desk import AdminDesk
from redrive.sources.pipeline.admin.service import AdminServer
from redrive.sources.pipeline.engine import arrivals
from redrive.sources.pipeline.protos import engine_pb2 as messages
from redrive.sources.pipeline.protos.document_pb2 import PipeDoc, PipeStream
from redrive.sources.pipeline.protos.engine_pb2_grpc import PipelineEngineServiceStub

TOKEN = "a-token-of-the-operators"  # noqa: S105 - of this test alone
ROOT = Path(__file__).parents[4]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextlib.asynccontextmanager
async def served(scene, pipeline, *, token=""):
    """Serve a *pipeline* as `redrive pipeline run` does, and give a channel to it."""
    desk = AdminDesk(lambda: pipeline.graph, pipeline.kafka, engine=pipeline)
    server = AdminServer(desk, "127.0.0.1:0", token=token, engine=pipeline)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield channel
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def engine(scene, graph, **options):
    pipeline = scene.pipeline(graph, **options)
    async with served(scene, pipeline) as channel, running(pipeline):
        await until(lambda: pipeline._arrivals is not None)
        yield PipelineEngineServiceStub(channel)


def node_request(node_id="embed", **document):
    return messages.ProcessNodeRequest(
        node_id=node_id, stream=PipeStream(stream_id="s1", document=PipeDoc(doc_id="d1", **document))
    )


def content(request, _context):
    return passed_on(request)


async def refusal(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details()


# ---------------------------------------------------------------------- Submit


async def test_a_submitted_document_is_in_the_topic_when_the_answer_comes_and_reaches_the_end(scene):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        async with engine(scene, graph) as stub:
            request = messages.SubmitRequest(
                document=PipeDoc(doc_id="d1", body=b"text"), stream_id="s1", context_params={"tenant": "seven"}
            )
            answer = await stub.Submit(request, metadata=(("traceparent", PARENT),))
            [record] = scene.messages(answer.topic)
            await until(lambda: len(scene.done()) == 1)
    assert (answer.stream_id, answer.topic) == ("s1", f"in.{scene.env}.parse")
    assert (record.partition(), record.offset(), record.key()) == (answer.partition, answer.offset, b"s1")
    assert dict(record.headers()) == {"traceparent": PARENT.encode()}
    [call] = module.calls
    assert (call.document.body, dict(call.metadata.context_params)) == (b"text", {"tenant": "seven"})
    assert scene.done()[0].doc_id == "d1"


async def test_a_document_is_submitted_to_a_node_that_the_caller_names(scene):
    async with serving() as module:
        nodes = [{"id": name, "module": module.target} for name in ("parse", "index")]
        async with engine(scene, scene.graph(*nodes, edges=[("parse", "index")])) as stub:
            answer = await stub.Submit(messages.SubmitRequest(document=PipeDoc(doc_id="d1"), node_id="index"))
            await until(lambda: len(scene.done()) == 1)
    assert answer.stream_id == scene.done()[0].stream_id
    assert list(scene.done()[0].processing_path) == ["index"]


async def test_what_cannot_be_taken_is_refused_with_the_way_out(scene, monkeypatch):
    async with serving() as module:
        nodes = [{"id": name, "module": module.target} for name in ("left", "right")]
        async with engine(scene, scene.graph(*nodes)) as stub:
            document = PipeDoc(doc_id="d1")
            code, told = await refusal(stub.Submit(messages.SubmitRequest(document=document, node_id="lefd")))
            assert (code, "it has left, right" in told) == ("NOT_FOUND", True)
            code, told = await refusal(stub.Submit(messages.SubmitRequest(document=document)))
            assert (code, "name a node, or set entry" in told) == ("INVALID_ARGUMENT", True)
            assert (await refusal(stub.Submit(messages.SubmitRequest())))[0] == "INVALID_ARGUMENT"
            assert (await refusal(stub.ProcessNode(messages.ProcessNodeRequest())))[0] == "INVALID_ARGUMENT"
            code, told = await refusal(stub.ProcessNode(node_request("lefd")))
            assert (code, "no node 'lefd'" in told) == ("NOT_FOUND", True)
            nameless = messages.ProcessNodeRequest(node_id="left", stream=PipeStream(document=document))
            code, told = await refusal(stub.ProcessNode(nameless))
            assert (code, "no stream_id" in told) == ("INVALID_ARGUMENT", True)
            monkeypatch.setattr(arrivals, "MOST", 0)
            code, told = await refusal(stub.Submit(messages.SubmitRequest(document=document, node_id="left")))
            assert (code, "still yours" in told) == ("RESOURCE_EXHAUSTED", True)
    assert scene.messages(f"in.{scene.env}.left") == []


async def test_a_document_larger_than_its_topic_takes_is_refused_and_not_tried_for_ever(scene):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target, "max_message_bytes": 1024})
        async with engine(scene, graph) as stub:
            request = messages.SubmitRequest(document=PipeDoc(doc_id="d1", body=bytes(2_000_000)))
            code, told = await refusal(stub.Submit(request))
    assert (code, "max.message.bytes" in told) == ("INVALID_ARGUMENT", True)


# ---------------------------------------------------------------------- ProcessNode


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])
async def test_every_branch_is_where_the_answer_says(scene, exactly_once):
    async with serving(content, refusing(grpc.StatusCode.UNAVAILABLE), refusing(grpc.StatusCode.NOT_FOUND)) as (
        good, away, odd,
    ):  # fmt: skip
        nodes = [
            {"id": "parse", "module": good.target}, {"id": "end", "module": good.target},
            {"id": "dead", "module": away.target, "dlq": {"max_retries": 2}}, {"id": "odd", "module": odd.target},
            {"id": "off", "module": away.target, "dlq": {"max_retries": 1, "enabled": False}},
            {"id": "later", "module": good.target},
        ]  # fmt: skip
        direct = {"transport": "grpc"}
        edges = [*(("parse", name, direct) for name in ("end", "dead", "odd", "off")), ("parse", "later")]
        async with engine(scene, scene.graph(*nodes, edges=edges), exactly_once=exactly_once) as stub:
            answer = await stub.ProcessNode(node_request("parse", body=b"kept"))
            [letter] = scene.dead("dead")
            [aside] = scene.quarantined("odd")
            assert len(scene.messages(f"in.{scene.env}.later")) == 1
            assert "end" in {done.last_node_id for done in scene.done()}
    found = {(each.node_id, messages.Placement.Name(each.placement), each.topic) for each in answer.places}
    assert found == {
        ("end", "PLACEMENT_END", f"done.{scene.env}"), ("dead", "PLACEMENT_DLQ", f"dlq.{scene.env}.dead"),
        ("odd", "PLACEMENT_QUARANTINE", f"quarantine.{scene.env}.odd"), ("off", "PLACEMENT_DROPPED", ""),
        ("later", "PLACEMENT_TOPIC", f"in.{scene.env}.later"),
    }  # fmt: skip
    assert {each.branch for each in answer.places} == {f"{n}of5" for n in range(1, 6)}
    assert (letter.retry_count, letter.stream.document.body) == (2, b"kept")
    assert not letter.HasField("original_topic")
    assert not letter.HasField("original_offset")
    assert aside.error_type == "NOT_FOUND"


async def test_a_large_document_of_a_caller_is_saved_first_and_its_dead_letter_has_the_reference(scene, tmp_path):
    body = b"large" * 1000
    storage = {"url": f"file://{tmp_path}", "inline_limit": 100}
    async with serving(refusing(grpc.StatusCode.UNAVAILABLE, times=1)) as module:
        node = {"id": "embed", "module": module.target, "dlq": {"max_retries": 1}}
        async with engine(scene, scene.graph(node, documents=storage)) as stub:
            answer = await stub.ProcessNode(node_request(body=body))
            [letter] = scene.dead("embed")
            scene.put([letter.stream], f"in.{scene.env}.embed")  # as a replay does
            await until(lambda: len(scene.done()) == 1)
    assert [each.placement for each in answer.places] == [messages.PLACEMENT_DLQ]
    assert letter.stream.document_ref.size == len(body)
    assert [call.document.body for call in module.calls] == [body, body]


async def test_a_caller_keeps_its_document_while_the_repository_is_away(scene):
    away = {"url": "s3://documents", "inline_limit": 100, "options": {**KEYS, "endpoint": "http://127.0.0.1:9"}}
    graph = scene.graph({"id": "embed", "module": "127.0.0.1:1"}, documents=away)
    async with engine(scene, graph) as stub:
        code, told = await refusal(stub.ProcessNode(node_request(body=bytes(200))))
        assert (code, "still yours" in told) == ("UNAVAILABLE", True)
        request = messages.SubmitRequest(document=PipeDoc(doc_id="d1", body=bytes(200)))
        assert (await refusal(stub.Submit(request)))[0] == "UNAVAILABLE"
    assert scene.messages(f"in.{scene.env}.embed") == scene.dead("embed") == []


async def test_a_node_that_is_held_keeps_the_caller_waiting_until_its_deadline(scene):
    async with serving() as module:
        graph = scene.graph({"id": "embed", "module": module.target})
        pipeline = scene.pipeline(graph)
        async with served(scene, pipeline) as channel, running(pipeline):
            stub = PipelineEngineServiceStub(channel)
            await until(lambda: pipeline._arrivals is not None)
            pipeline.gate("embed").pause("by a test")
            assert (await refusal(stub.ProcessNode(node_request(), timeout=0.5)))[0] == "DEADLINE_EXCEEDED"
            waiting = asyncio.ensure_future(stub.ProcessNode(node_request()))
            await until(lambda: pipeline.gate("embed").waiting > 0)
            pipeline.gate("embed").resume()
            assert [each.placement for each in (await waiting).places] == [messages.PLACEMENT_END]
    assert len(module.calls) == 1


async def test_an_engine_that_stops_leaves_the_document_to_its_caller(scene):
    async with serving() as module:
        graph = scene.graph({"id": "embed", "module": module.target})
        pipeline = scene.pipeline(graph)
        async with served(scene, pipeline) as channel:
            stub = PipelineEngineServiceStub(channel)
            code, told = await refusal(stub.ProcessNode(node_request()))
            assert (code, "has not started" in told) == ("UNAVAILABLE", True)
            async with running(pipeline):
                await until(lambda: pipeline._arrivals is not None)
                pipeline.gate("embed").pause("by a test")
                waiting = asyncio.ensure_future(stub.ProcessNode(node_request()))
                await until(lambda: pipeline.gate("embed").waiting > 0)
            code, told = await refusal(waiting)
            assert (code, "still yours" in told) == ("UNAVAILABLE", True)
            code, told = await refusal(stub.Submit(messages.SubmitRequest(document=PipeDoc(doc_id="d2"))))
            assert (code, "the engine stops" in told) == ("UNAVAILABLE", True)
    assert module.calls == []
    assert scene.done() == []


async def test_a_call_that_hangs_when_the_engine_stops_is_left_to_its_caller(scene, monkeypatch):
    monkeypatch.setattr(arrivals, "DRAIN", 0.1)
    async with serving(lambda _request, _context: asyncio.sleep(60)) as module:
        graph = scene.graph({"id": "embed", "module": module.target})
        pipeline = scene.pipeline(graph)
        async with served(scene, pipeline) as channel:
            stub = PipelineEngineServiceStub(channel)
            async with running(pipeline):
                await until(lambda: pipeline._arrivals is not None)
                waiting = asyncio.ensure_future(stub.ProcessNode(node_request()))
                await until(lambda: module.calls)
            assert (await refusal(waiting))[0] == "UNAVAILABLE"


@contextlib.contextmanager
def started(scene, graph, address, failpoints=""):
    """Run an engine in a process of its own meanwhile."""
    words = [scene.bootstrap, msgspec.json.encode(graph).decode(), address]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "REDRIVE_FAILPOINTS": failpoints}
    command = [sys.executable, "-m", "tests.sources.pipeline.admin.served_engine", *words]
    with subprocess.Popen(command, env=env, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


async def handed_over(address, request):
    """Call until the engine answers, as a caller has to."""
    while True:
        async with grpc.aio.insecure_channel(address) as channel:
            try:
                return await PipelineEngineServiceStub(channel).ProcessNode(request, timeout=30, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["pipeline.after_call", "pipeline.before_outputs", "pipeline.after_outputs"])
async def test_an_engine_killed_before_its_answer_leaves_the_document_to_the_caller(scene, step):
    address = f"127.0.0.1:{free_port()}"
    async with serving() as module:
        nodes = [{"id": name, "module": module.target} for name in ("parse", "left", "right")]
        edges = [("parse", name, {"transport": "grpc"}) for name in ("left", "right")]
        graph = scene.graph(*nodes, edges=edges)
        request = node_request("parse")
        answering = asyncio.create_task(handed_over(address, request))
        with started(scene, graph, address, f"{step}=kill@1") as dying:
            assert await asyncio.to_thread(dying.wait, LIMIT) == -signal.SIGKILL
        assert not answering.done()
        with started(scene, graph, address):
            answer = await asyncio.wait_for(answering, LIMIT)
    assert sorted(each.branch for each in answer.places) == ["1of2", "2of2"]
    assert {(done.stream_id, done.branch) for done in scene.done()} == {("s1", "1of2"), ("s1", "2of2")}


# ---------------------------------------------------------------------- the address, the token


async def test_documents_and_operators_share_the_address_the_token_and_reflection(scene):
    graph = scene.graph({"id": "embed", "module": "127.0.0.1:1"})
    metadata = (("authorization", f"Bearer {TOKEN}"),)
    async with served(scene, scene.pipeline(graph), token=TOKEN) as channel:
        stub = PipelineEngineServiceStub(channel)
        assert (await refusal(stub.ProcessNode(node_request())))[0] == "UNAUTHENTICATED"
        assert (await refusal(stub.Submit(messages.SubmitRequest())))[0] == "UNAUTHENTICATED"
        assert (await refusal(stub.ProcessNode(node_request(), metadata=metadata)))[0] == "UNAVAILABLE"
        asked = ServerReflectionStub(channel).ServerReflectionInfo(
            iter([ServerReflectionRequest(list_services="")]), metadata=metadata
        )
        names = [each.name async for answer in asked for each in answer.list_services_response.service]
    assert {f"redrive.pipeline.v1.Pipeline{name}Service" for name in ("Admin", "Engine")} <= set(names)
