"""A module made of an async function, as a client of gRPC sees it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from redrive import Reject, RetryAfter
from redrive.errors import HandlerError, SettingsError
from redrive.sources.pipeline import module
from redrive.sources.pipeline.graph.model import Tls
from redrive.sources.pipeline.modules.serving import SERVICE
from redrive.sources.pipeline.protos import module_pb2, module_pb2_grpc
from redrive.sources.pipeline.protos.document_pb2 import PipeDoc


@asynccontextmanager
async def client(function, **options):
    async with (
        module(function, **options).listening("localhost:0") as address,
        grpc.aio.insecure_channel(address) as way,
    ):
        yield module_pb2_grpc.PipeStepProcessorServiceStub(way)


def request(**document) -> module_pb2.ProcessDataRequest:
    return module_pb2.ProcessDataRequest(document=PipeDoc(doc_id="d1", **document))


async def test_a_document_that_is_returned_goes_on():
    async def upper(document: PipeDoc) -> PipeDoc:
        document.body = document.body.upper()
        return document

    async with client(upper) as stub:
        answer = await stub.ProcessData(request(body=b"abc"))
    assert (answer.outcome, answer.output_doc.body, answer.output_doc.doc_id) == (1, b"ABC", "d1")


async def test_a_function_with_two_parameters_gets_the_whole_request():
    async def configured(document: PipeDoc, asked: module_pb2.ProcessDataRequest) -> PipeDoc:
        document.attributes["model"] = asked.config.json_config["model"]
        return document

    given = request()
    given.config.json_config["model"] = "small"
    async with client(configured) as stub:
        assert (await stub.ProcessData(given)).output_doc.attributes["model"] == "small"


async def test_nothing_returned_means_skipped():
    async def skipping(document: PipeDoc) -> None:
        """Want none of them."""

    async with client(skipping) as stub:
        assert (await stub.ProcessData(request())).outcome == module_pb2.OUTCOME_SKIPPED


async def test_an_answer_that_is_returned_is_the_answer():
    async def partial(document: PipeDoc) -> module_pb2.ProcessDataResponse:
        return module_pb2.ProcessDataResponse(outcome=module_pb2.OUTCOME_PARTIAL, output_doc=document)

    async with client(partial) as stub:
        assert (await stub.ProcessData(request())).outcome == module_pb2.OUTCOME_PARTIAL


async def test_reject_is_a_logical_failure():
    async def rejecting(document: PipeDoc) -> PipeDoc:
        raise Reject("no PDF")

    async with client(rejecting) as stub:
        answer = await stub.ProcessData(request())
    assert (answer.outcome, answer.error_message, answer.error_code) == (module_pb2.OUTCOME_FAILURE, "no PDF", "Reject")


async def failure_of(function, **options) -> grpc.aio.AioRpcError:
    async with client(function, **options) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.ProcessData(request())
    return failed.value


async def test_retry_after_asks_for_the_wait_in_both_ways():
    async def busy(document: PipeDoc) -> PipeDoc:
        raise RetryAfter(1.5, "warming up")

    error = await failure_of(busy)
    trailers = dict(error.trailing_metadata())
    assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "warming up")
    assert trailers["grpc-retry-pushback-ms"] == "1500"
    info = RetryInfo()
    assert Status.FromString(trailers["grpc-status-details-bin"]).details[0].Unpack(info)
    assert info.retry_delay.ToMilliseconds() == 1500


async def test_any_other_exception_is_one_that_engines_retry():
    class Hostile(Exception):
        def __str__(self):
            raise ValueError

    async def broken(document: PipeDoc) -> PipeDoc:
        raise KeyError("model")

    async def hostile(document: PipeDoc) -> PipeDoc:
        raise Hostile

    async def nonsense(document: PipeDoc):
        return 7

    error = await failure_of(broken)
    assert (error.code(), error.details()) == (grpc.StatusCode.UNKNOWN, "KeyError: 'model'")
    assert "Hostile: (its text cannot be had)" in (await failure_of(hostile)).details()
    assert "returned int" in (await failure_of(nonsense)).details()


async def test_a_module_says_what_it_is():
    async def embed(document: PipeDoc) -> PipeDoc:
        """Add embeddings."""
        return document

    schema = {"type": "object", "properties": {"model": {"type": "string"}}}
    async with client(embed, version="1.2", config_schema=schema) as stub:
        said = await stub.GetServiceRegistration(module_pb2.ServiceRegistrationRequest())
    assert (said.module_name, said.version, said.description) == ("embed", "1.2", "Add embeddings.")
    assert said.json_config_schema["type"] == "object"
    assert said.max_message_bytes == 64 * 1024 * 1024


async def echo(document: PipeDoc) -> PipeDoc:
    return document


async def test_health_and_reflection_are_there():
    async with module(echo).listening("localhost:0") as address, grpc.aio.insecure_channel(address) as way:
        stub = health_pb2_grpc.HealthStub(way)
        for name in ("", SERVICE):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection_pb2_grpc.ServerReflectionStub(way).ServerReflectionInfo(iter([asked]))
        listed = [service.name async for answer in call for service in answer.list_services_response.service]
    assert SERVICE in listed


async def test_large_documents_are_taken_up_to_the_limit():
    async with module(echo).listening("localhost:0") as address:
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        async with grpc.aio.insecure_channel(address, options=options) as way:
            stub = module_pb2_grpc.PipeStepProcessorServiceStub(way)
            assert len((await stub.ProcessData(request(body=b"x" * 10_000_000))).output_doc.body) == 10_000_000
            with pytest.raises(grpc.aio.AioRpcError, match="larger than max"):
                await stub.ProcessData(request(body=b"x" * 65 * 1024 * 1024))


async def test_calls_under_way_finish_and_health_says_that_it_goes():
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(document: PipeDoc) -> PipeDoc:
        began.set()
        await go_on.wait()
        return document

    async with module(slow).listening("localhost:0") as address:
        way = grpc.aio.insecure_channel(address)
        call = asyncio.ensure_future(module_pb2_grpc.PipeStepProcessorServiceStub(way).ProcessData(request()))
        watch = health_pb2_grpc.HealthStub(way).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        await began.wait()

        async def finish():
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watch.cancel()
            go_on.set()

        finishing = asyncio.ensure_future(finish())
    await finishing
    assert (await call).outcome == module_pb2.OUTCOME_SUCCESS
    await way.close()


async def test_a_module_that_stops_under_load_cancels_no_call_so_that_no_document_goes_to_quarantine():
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(document: PipeDoc) -> PipeDoc:
        began.set()
        await go_on.wait()
        return document

    async def code(stub) -> str:
        try:
            await stub.ProcessData(request())
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return "OK"

    async with module(slow).listening("localhost:0") as address:
        way = grpc.aio.insecure_channel(address)
        stub = module_pb2_grpc.PipeStepProcessorServiceStub(way)
        early = asyncio.ensure_future(code(stub))
        await began.wait()
        late = [asyncio.ensure_future(code(stub)) for _ in range(50)]
        await asyncio.sleep(0)  # they are on their way, and the server has begun none of them
        asyncio.get_running_loop().call_later(0.05, go_on.set)
    codes = set(await asyncio.gather(*late))
    assert "UNAVAILABLE" in codes
    assert codes <= {"UNAVAILABLE", "OK"}
    assert await early == "OK"
    await way.close()


async def test_calls_that_do_not_finish_in_time_are_ones_that_engines_retry():
    began = asyncio.Event()

    async def stuck(_document: PipeDoc) -> None:
        began.set()
        await asyncio.Event().wait()

    async with module(stuck).listening("localhost:0", drain=0.01) as address:
        way = grpc.aio.insecure_channel(address)
        call = module_pb2_grpc.PipeStepProcessorServiceStub(way).ProcessData(request())
        await began.wait()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await way.close()


async def test_two_modules_do_not_share_a_port():
    async with module(echo).listening("localhost:0") as address:
        with pytest.raises(SettingsError, match="give a free HOST:PORT"):
            async with module(echo).listening(address):
                pass


def test_only_an_async_function_becomes_a_module():
    with pytest.raises(HandlerError, match="must be an async function"):
        module(lambda document: document)


def certificates(folder) -> Tls:
    """Make a certificate for localhost that signs itself, and so serves as its own authority."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    extra = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *extra], check=True, capture_output=True)
    return Tls(ca=str(certificate), certificate=str(certificate), key=str(key))


async def test_with_tls_and_an_authority_only_engines_with_a_certificate_are_served(tmp_path):
    tls = certificates(tmp_path)
    pem, key = (tmp_path / "cert.pem").read_bytes(), (tmp_path / "key.pem").read_bytes()
    async with module(echo).listening("localhost:0", tls=tls) as address:
        async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(pem, key, pem)) as way:
            stub = module_pb2_grpc.PipeStepProcessorServiceStub(way)
            assert (await stub.ProcessData(request())).output_doc.doc_id == "d1"
        async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(pem)) as way:
            with pytest.raises(grpc.aio.AioRpcError):
                await module_pb2_grpc.PipeStepProcessorServiceStub(way).ProcessData(request())


async def test_tls_without_its_files_is_one_sentence(tmp_path):
    for tls, problem in [
        (Tls(), "needs `certificate` and `key`"),
        (Tls(certificate="no", key="no"), "cannot read 'no'"),
    ]:
        with pytest.raises(SettingsError, match=problem):
            async with module(echo).listening("localhost:0", tls=tls):
                pass


SCRIPT = """
import asyncio, sys
from redrive.sources.pipeline import module

async def echo(document):
    return document

async def main():
    served = asyncio.ensure_future(module(echo).serve(sys.argv[1]))
    await asyncio.sleep(0)
    print("up", flush=True)
    await served
    print("drained", flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_sigterm_ends_a_module_in_order(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, f"unix:{tmp_path}/module.sock"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "up\n"
        with grpc.insecure_channel(f"unix:{tmp_path}/module.sock") as way:
            stub = module_pb2_grpc.PipeStepProcessorServiceStub(way)
            assert stub.ProcessData(request(), wait_for_ready=True, timeout=30).output_doc.doc_id == "d1"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out.splitlines()[-1]) == (0, "drained")
