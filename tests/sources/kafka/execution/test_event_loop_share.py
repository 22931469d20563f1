"""Workers that never wait leave the event loop to others now and then; those that wait keep their tasks."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.kafka.samples import partition, record

from redrive.sources.kafka import AsyncExecutionEngine, ExecutionConfig
from redrive.sources.kafka.execution.batches import BatchExecutionEngine
from redrive.sources.kafka.execution.producing import ProducingEngine

MANY = 5_000
FEW = 1_000  # as many as may end before anybody else has a turn, by a wide margin
QUICK = {"retry_backoff_ms": 1, "retry_jitter_ms": 0, "exponential_backoff": False}


class Line:
    """Completions, and the records that follow each other."""

    def __init__(self, engine, followers=()):
        self.ended, self._followers = 0, iter(followers)
        self._news = asyncio.Event()
        engine.connect(self._completed)

    def _completed(self, _event):
        self.ended += 1
        self._news.set()
        return next(self._followers, None)

    async def ends(self, expected=MANY):
        async with asyncio.timeout(60):
            while self.ended < expected:
                self._news.clear()
                await self._news.wait()


def records(number=MANY):
    of = partition()
    return [record(offset, of=of) for offset in range(number)]


async def fine(_record):
    pass


async def all_fine(_records):
    pass


async def fails(_record):
    raise ValueError("no")


async def ended_when_another_has_its_turn(engine, submitted, followers=()):
    """Submit; return how many had ended when whoever else waited for the event loop was called."""
    line, seen = Line(engine, followers), []
    asyncio.get_running_loop().call_soon(lambda: seen.append(line.ended))
    engine.submit(submitted)
    await line.ends()
    await engine.close(0)
    return seen[0]


async def test_others_on_the_event_loop_have_their_turn_between_records_that_never_wait():
    engine = AsyncExecutionEngine(fine, ExecutionConfig())
    assert await ended_when_another_has_its_turn(engine, records()) < FEW


async def test_others_have_their_turn_between_records_that_follow_each_other():
    engine = AsyncExecutionEngine(fine, ExecutionConfig())
    first, *rest = records()
    assert await ended_when_another_has_its_turn(engine, [first], rest) < FEW


async def test_others_have_their_turn_between_records_that_fail_at_once():
    engine = AsyncExecutionEngine(fails, ExecutionConfig(max_retries=1))
    assert await ended_when_another_has_its_turn(engine, records()) < FEW


@pytest.mark.parametrize("size", [1, 100])
async def test_others_have_their_turn_between_batches_that_never_wait(size):
    engine = BatchExecutionEngine(all_fine, ExecutionConfig(batch_size=size))
    assert await ended_when_another_has_its_turn(engine, records()) < FEW


async def test_a_retry_does_not_wait_until_all_others_are_done():
    ended_before = []

    async def fails_once(one):
        if one.offset == 0 and one.attempt == 1:
            raise ValueError("not yet")
        if one.offset == 0:
            ended_before.append(line.ended)

    engine = AsyncExecutionEngine(fails_once, ExecutionConfig(**QUICK))
    line = Line(engine)
    engine.submit(records(50_000))  # takes far longer than the millisecond that the retry waits
    await line.ends(50_000)
    await engine.close(0)
    assert ended_before[0] < 49_000


async def test_records_that_wait_go_on_in_their_tasks_however_many_end_in_one_turn():
    tasks, gates = set(), {1: asyncio.Event(), 2: asyncio.Event()}
    lanes, second = 1_000, records(1_000)

    async def waits(one):
        tasks.add(asyncio.current_task())
        await gates[1 if one.timestamp else 2].wait()

    engine = AsyncExecutionEngine(waits, ExecutionConfig(max_in_flight=lanes))
    line = Line(engine, second)
    engine.submit([record(offset, timestamp=1) for offset in range(lanes)])
    gates[1].set()  # all of them end in the same turn of the event loop
    await line.ends(lanes)
    gates[2].set()
    await line.ends(2 * lanes)
    await engine.close(0)
    assert len(tasks) == lanes


async def test_a_worker_with_outputs_goes_on_after_as_many_records_as_may_end_in_one_iteration():
    engine = ProducingEngine(fine, ExecutionConfig(max_in_flight=10))
    assert await ended_when_another_has_its_turn(engine, records()) < FEW
