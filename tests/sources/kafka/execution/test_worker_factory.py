"""Workers with a configuration of their own, made where they run: nothing is pickled."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.kafka import workers
from tests.sources.kafka.execution.test_engines import BOTH, completions, one
from tests.sources.kafka.samples import record

from redrive.errors import HandlerError
from redrive.sources.kafka import AsyncExecutionEngine, ExecutionConfig, ProcessExecutionEngine, WorkerFactory
from redrive.sources.kafka.execution.factory import engine_for

GREETER = "tests.sources.kafka.workers:Greeter"


@BOTH
async def test_a_configured_worker_is_made_from_its_name_and_plain_arguments(kind):
    event = await one(kind, WorkerFactory(GREETER, greeting="hello", names=["a", "b"]), max_retries=1)
    assert event.error == "RuntimeError: hello a+b for the 1. time"


async def test_it_is_made_once_in_a_worker_process():
    factory = WorkerFactory(workers.Greeter, greeting="hello", names=("a",))
    events = await completions(ProcessExecutionEngine, factory, [record(n) for n in range(3)], max_retries=1)
    assert [event.error.split()[-2] for event in events] == ["1.", "2.", "3."]


@pytest.mark.parametrize("mode", ["async", "process"])
async def test_batch_workers_are_made_likewise(mode):
    factory = WorkerFactory("tests.sources.kafka.workers:BatchGreeter", greeting="hello", names=["a"])
    engine = engine_for(factory, ExecutionConfig(mode=mode, batch_size=5, max_retries=1, process_count=1))
    events: asyncio.Queue = asyncio.Queue()
    engine.connect(events.put_nowait)
    engine.submit([record()])
    async with asyncio.timeout(120):
        event = await events.get()
    await engine.close(0)
    assert event.error == "RuntimeError: hello a for the 1. time"


def test_an_object_in_worker_processes_is_refused_with_the_way_to_a_factory():
    with pytest.raises(HandlerError, match="let a WorkerFactory make it there"):
        ProcessExecutionEngine(workers.Greeter(greeting="x", names=[]), ExecutionConfig())


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: WorkerFactory("shop"), "write it as module:function"),
        (lambda: WorkerFactory(lambda: None), "it is a lambda"),
        (lambda: WorkerFactory(GREETER, greeting=object()), "give texts, numbers"),
        (lambda: WorkerFactory(GREETER, greeting="x" * 20_000), "may take 16384"),
        (lambda: WorkerFactory("tests.sources.kafka.workers:makes_nothing").make(), "made a NoneType"),
        (lambda: ProcessExecutionEngine(WorkerFactory("tests.sources.kafka.workers:none"), ExecutionConfig()), "none"),
        (lambda: AsyncExecutionEngine(WorkerFactory("tests.sources.kafka.workers:none"), ExecutionConfig()), "none"),
    ],
)
def test_what_cannot_make_a_worker_is_said_before_anything_is_consumed(make, complaint):
    with pytest.raises(HandlerError, match=complaint):
        make()


def test_a_factory_shows_its_address_and_never_its_arguments():
    assert repr(WorkerFactory(GREETER, greeting="hidden")) == f"WorkerFactory({GREETER!r})"
