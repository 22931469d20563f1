"""The client of a module, against real gRPC servers."""

from __future__ import annotations

import asyncio
import socket

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tests.sources.pipeline.modules.scripted import ScriptedModule, passed_on, serving

from redrive.sources.pipeline.modules.client import ModuleAddress, ModuleClient, host_of
from redrive.sources.pipeline.modules.failures import Remedy, StepFailed
from redrive.sources.pipeline.protos.document_pb2 import PipeDoc
from redrive.sources.pipeline.protos.module_pb2 import ProcessDataRequest, ProcessDataResponse

REQUEST = ProcessDataRequest(document=PipeDoc(doc_id="a")).SerializeToString()


async def failing(target, **options):
    client = ModuleClient(ModuleAddress(target=target, **options))
    try:
        with pytest.raises(StepFailed) as caught:
            await client.process(REQUEST, timeout=60)
    finally:
        await client.close()
    return caught.value.trouble


def refusing(code, text="", trailers=()):
    async def script(_request, context):
        await context.abort(code, text, trailers)

    return script


async def test_an_answer_comes_back_as_bytes():
    async with serving() as module:
        client = ModuleClient(ModuleAddress(target=module.target))
        answer = ProcessDataResponse.FromString(await client.process(REQUEST, timeout=5))
        await client.close()
    assert answer.output_doc.doc_id == "a"


async def test_a_module_that_is_not_there_is_a_refused_connection():
    with socket.socket() as taken:  # bound, not listening: nobody else gets the port
        taken.bind(("127.0.0.1", 0))
        trouble = await failing(f"127.0.0.1:{taken.getsockname()[1]}")
    assert (trouble.remedy, trouble.word) == (Remedy.RETRY, "CONNECTION_REFUSED")


async def test_a_module_that_hangs_is_left_at_its_deadline():
    async with serving(lambda _request, _context: asyncio.sleep(60)) as module:
        client = ModuleClient(ModuleAddress(target=module.target))
        with pytest.raises(StepFailed) as caught:
            await client.process(REQUEST, timeout=0.1)
        await client.close()
    assert (caught.value.trouble.remedy, caught.value.trouble.word) == (Remedy.RETRY, "TIMEOUT")


async def test_a_host_name_that_does_not_resolve_holds_the_node():
    trouble = await failing("dns:///no-such-host.invalid:50051")
    assert (trouble.remedy, trouble.word) == (Remedy.HOLD, "HOST_NOT_FOUND")
    assert "no-such-host.invalid" in trouble.text


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("localhost:50051", "localhost"), ("dns:///embedder:1", "embedder"), ("dns://1.1.1.1/embedder:1", "embedder"),
        ("127.0.0.1:50051", ""), ("ipv4:10.0.0.1:1,10.0.0.2:1", ""), ("[::1]:50051", ""), ("unix:/tmp/module", ""),
        ("dns:embedder:50051", "embedder"),
    ],
)  # fmt: skip
def test_only_names_are_resolved(target, host):
    assert host_of(target) == host


async def test_pushback_and_retry_info_are_read_from_the_trailers():
    script = refusing(grpc.StatusCode.UNAVAILABLE, "busy", (("grpc-retry-pushback-ms", "2500"),))
    async with serving(script) as module:
        trouble = await failing(module.target)
    assert (trouble.remedy, trouble.wait) == (Remedy.RETRY, 2.5)


@pytest.mark.parametrize("size", [2_000_000, 100_000_000])
async def test_an_answer_that_is_too_large_is_no_infrastructure_failure(size):
    async with serving(lambda _request, _context: b"\x0a" + bytes(size)) as module:
        trouble = await failing(module.target, max_message_bytes=1_000_000)
    assert (trouble.remedy, trouble.word) == (Remedy.QUARANTINE, "MESSAGE_TOO_LARGE")


async def test_a_document_that_is_too_large_to_send_is_no_infrastructure_failure_and_the_next_one_goes():
    large = ProcessDataRequest(document=PipeDoc(doc_id="a", body=bytes(2_000_000))).SerializeToString()
    async with serving() as module:
        client = ModuleClient(ModuleAddress(target=module.target, max_message_bytes=1_000_000))
        with pytest.raises(StepFailed) as caught:
            await client.process(large, timeout=60)
        await client.process(REQUEST, timeout=60)
        await client.close()
    assert (caught.value.trouble.remedy, caught.value.trouble.word) == (Remedy.QUARANTINE, "MESSAGE_TOO_LARGE")
    assert len(module.calls) == 1


async def test_no_more_calls_run_at_once_than_the_module_takes():
    running, most = 0, 0

    async def script(request, _context):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return passed_on(request)

    async with serving(script) as module:
        client = ModuleClient(ModuleAddress(target=module.target, concurrency=3))
        await asyncio.gather(*(client.process(REQUEST, timeout=5) for _ in range(12)))
        await client.close()
    assert most == 3


async def test_calls_go_round_all_instances():
    async with serving(lambda r, _: passed_on(r), lambda r, _: passed_on(r)) as (one, two):
        client = ModuleClient(ModuleAddress(target=f"ipv4:{one.target},{two.target}"))
        while not (one.calls and two.calls):
            await client.process(REQUEST, timeout=5)
        await client.close()


async def test_an_instance_that_says_it_is_not_serving_gets_no_calls():
    well, answers = ScriptedModule(), health.aio.HealthServicer()
    await answers.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(answers, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await well.start()
    client = ModuleClient(ModuleAddress(target=f"ipv4:127.0.0.1:{port},{well.target}"))
    for _ in range(20):
        await client.process(REQUEST, timeout=5)  # the ill one has no such method: a call there would fail
    await client.close()
    await server.stop(0)
    await well.stop()
    assert len(well.calls) == 20


async def test_a_module_that_is_back_is_found_within_a_second_or_two():
    module = ScriptedModule()
    await module.start()
    client = ModuleClient(ModuleAddress(target=module.target))
    await client.process(REQUEST, timeout=5)
    await module.stop()
    for _ in range(20):
        with pytest.raises(StepFailed):
            await client.process(REQUEST, timeout=5)
    await module.start()
    async with asyncio.timeout(5):
        while True:
            try:
                await client.process(REQUEST, timeout=5)
                break
            except StepFailed:
                await asyncio.sleep(0.05)
    await client.close()
    await module.stop()
