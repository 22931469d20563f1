"""
The contenders beside a pipeline in its benchmark, and the module that all of them call.

Owns what each of them does with a document; as a program, `python -m benchmarks.pipeline_cases PORT DELAY`, it is the
module. All wait until the last document is confirmed. Knows no bar, and nothing of our engine.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from redrive.sources.pipeline.protos.document_pb2 import PipeDoc, PipeStream
from redrive.sources.pipeline.protos.module_pb2 import OUTCOME_SUCCESS, ProcessDataRequest, ProcessDataResponse

if TYPE_CHECKING:
    from pathlib import Path

_SERVICE = "redrive.pipeline.v1.PipeStepProcessorService"
_METHOD = f"/{_SERVICE}/ProcessData"
_BODY = bytes(range(256)) * 4


def document_of(number: int) -> PipeDoc:
    """Return a document of one kilobyte."""
    return PipeDoc(doc_id=f"doc-{number}", type="pdf", body=_BODY)


def speed(began: float, cpu: float, documents: int, steps: int) -> dict[str, Any]:
    """Return documents a second since *began*, and the CPU of a step in this process since *cpu*."""
    spent = time.perf_counter() - began
    return {"documents_a_second": documents / spent, "cpu_us": (time.process_time() - cpu) / steps * 1e6}


def bare(_folder: Path, *, target: str, documents: int, concurrency: int, **_: Any) -> dict[str, Any]:
    """Call the module from so many loops at once, and do nothing else."""
    return asyncio.run(_bare(target, documents, concurrency))


async def _bare(target: str, documents: int, concurrency: int) -> dict[str, Any]:
    async with grpc.aio.insecure_channel(target) as channel:
        call = channel.unary_unary(
            _METHOD, request_serializer=ProcessDataRequest.SerializeToString,
            response_deserializer=ProcessDataResponse.FromString,
        )  # fmt: skip
        await call(ProcessDataRequest(document=document_of(0)), wait_for_ready=True)
        numbers = iter(range(documents))

        async def loop() -> None:
            for number in numbers:
                await call(ProcessDataRequest(document=document_of(number)))

        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(loop() for _ in range(concurrency)))
        return speed(began, cpu, documents, documents)


def plain(_folder: Path, *, target: str, bootstrap: str, documents: int, name: str, **_: Any) -> dict[str, Any]:
    """Consume a document, call the module, produce the result, and so on; committed at the end."""
    source, sink = f"{name}-in", f"{name}-out"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(each, 4, 1) for each in (source, sink)]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    for number in range(documents):
        stream = PipeStream(stream_id=f"s-{number}", document=document_of(number))
        producer.produce(source, key=stream.stream_id, value=stream.SerializeToString())
        producer.poll(0)
    producer.flush()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest",
                         "enable.auto.commit": False})  # fmt: skip
    consumer.subscribe([source])
    with grpc.insecure_channel(target) as channel:
        call = channel.unary_unary(
            _METHOD, request_serializer=ProcessDataRequest.SerializeToString,
            response_deserializer=ProcessDataResponse.FromString,
        )  # fmt: skip
        message, handled = consumer.poll(60), 0
        began, cpu = time.perf_counter(), time.process_time()
        while message is not None:
            stream = PipeStream.FromString(message.value())
            answer = call(ProcessDataRequest(document=stream.document))
            stream.document.CopyFrom(answer.output_doc)
            producer.produce(sink, key=message.key(), value=stream.SerializeToString())
            producer.poll(0)
            handled += 1
            message = consumer.poll(60) if handled < documents else None
        producer.flush()
        consumer.commit(asynchronous=False)
        found = speed(began, cpu, documents, documents)
    consumer.close()
    return found


# ---------------------------------------------------------------------- the module


async def _serve(port: int, delay: float) -> None:
    async def answer(request: ProcessDataRequest, _context: Any) -> ProcessDataResponse:
        if delay:
            await asyncio.sleep(delay)
        return ProcessDataResponse(outcome=OUTCOME_SUCCESS, output_doc=request.document)

    handler = grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=ProcessDataRequest.FromString,
        response_serializer=ProcessDataResponse.SerializeToString,
    )  # fmt: skip
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"ProcessData": handler}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
