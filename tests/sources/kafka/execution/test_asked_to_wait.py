"""A worker that says how long to wait is tried again then, and not when its backoff is over."""

from __future__ import annotations

import asyncio

import pytest
from tests.engine.starting import PATIENCE, comes_true
from tests.sources.kafka import workers
from tests.sources.kafka.samples import partition, record

from redrive.sources.kafka import BatchFailed, CompletionStatus, ExecutionConfig
from redrive.sources.kafka.execution.factory import engine_for

HOUR = 3600.0


class Clock:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 1.0

    def monotonic(self) -> float:
        return self.now

    def draw(self) -> float:
        return 0.5

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody sleeps {seconds} s here")

    def block(self, seconds: float) -> None:
        raise AssertionError(f"nobody sleeps {seconds} s here")


async def in_a_task(item):
    workers.asks_to_wait(item)


async def batch_in_a_task(items):
    workers.batch_asks_to_wait(items)


def batch_names_it(items):
    bad = {}
    for item in items:
        try:
            workers.asks_to_wait(item)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is named
            bad[item] = error
    if bad:
        raise BatchFailed(bad)


WAYS = {
    "task": (in_a_task, {}),
    "thread": (workers.asks_to_wait, {}),
    "process": (workers.asks_to_wait, {"mode": "process"}),
    "batch in a task": (batch_in_a_task, {"batch_size": 3}),
    "batch in a thread": (workers.batch_asks_to_wait, {"batch_size": 3}),
    "batch in a process": (workers.batch_asks_to_wait, {"batch_size": 3, "mode": "process"}),
    "batch that names it": (batch_names_it, {"batch_size": 3}),
}


@pytest.mark.parametrize("error", ["RetryAfter", "an attribute", "a header"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_retry_comes_when_the_worker_asked_for_it_and_not_before(way, error):
    worker, config = WAYS[way]
    clock, events, owner = Clock(), asyncio.Queue(), partition()
    quick = ExecutionConfig(retry_backoff_ms=1, retry_jitter_ms=0, process_count=1, **config)
    engine = engine_for(worker, quick, clock=clock)
    engine.connect(events.put_nowait)
    try:
        engine.submit([record(n, value=value, of=owner) for n, value in enumerate([b"", error.encode(), b""])])
        async with asyncio.timeout(PATIENCE):
            others = [await events.get() for _ in range(2)]
            assert await comes_true(lambda: engine.waiting == 1)
            clock.now += HOUR - 1  # the backoff has long been over
            engine.wake()
            assert (engine.waiting, engine.running) == (1, 0)
            clock.now += 2
            engine.wake()
            asked = await events.get()
    finally:
        await engine.close(0)
    assert {event.offset for event in others} == {0, 2}
    assert (asked.offset, asked.status, asked.attempt) == (1, CompletionStatus.SUCCESS, 2)
