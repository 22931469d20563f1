"""Records through lanes and an engine: order per key, whatever fails."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.kafka.samples import partition, record

from redrive.sources.kafka import AsyncExecutionEngine, CompletionStatus, ExecutionConfig, WorkManager

QUICK = ExecutionConfig(retry_backoff_ms=1, retry_jitter_ms=0)


class Desk:
    """Collects completions and says when there are enough."""

    def __init__(self, worker, ordering, config=QUICK):
        self.events = []
        self._enough = asyncio.Event()
        self._wanted = 0
        self.work = WorkManager(AsyncExecutionEngine(worker, config), ordering, self._deliver)

    async def run(self, records):
        self._wanted = len(records)
        self.work.take(records)
        await asyncio.wait_for(self._enough.wait(), 120)
        return self.events

    def _deliver(self, events):
        self.events += events
        if len(self.events) >= self._wanted:
            self._enough.set()


@pytest.mark.parametrize("ordering", ["key_hash", "partition", "unordered"])
async def test_every_record_completes_once_in_every_ordering(ordering):
    async def worker(item):
        if item.offset % 7 == 0 and item.attempt < 3:
            raise RuntimeError("later")
        if item.offset % 3 == 0:
            await asyncio.sleep(0)

    owner = partition()
    records = [record(n, b"%d" % (n % 5), of=owner) for n in range(500)]
    events = await Desk(worker, ordering).run(records)
    assert sorted(event.offset for event in events) == list(range(500))


@pytest.mark.parametrize("ordering", ["key_hash", "partition"])
async def test_order_holds_while_a_record_is_retried(ordering):
    finished: dict[bytes, list[int]] = {}

    async def worker(item):
        await asyncio.sleep(0)
        if item.offset % 4 == 0 and item.attempt < 3:
            raise RuntimeError("later")
        finished.setdefault(item.key if ordering == "key_hash" else b"", []).append(item.offset)

    owner = partition()
    await Desk(worker, ordering).run([record(n, b"%d" % (n % 3), of=owner) for n in range(120)])
    assert all(offsets == sorted(offsets) for offsets in finished.values())


async def test_a_key_that_waits_for_its_retry_holds_back_no_other_key():
    async def worker(item):
        if item.key == b"bad" and item.attempt == 1:
            raise RuntimeError("later")

    owner = partition()
    records = [record(n, b"bad" if n == 0 else b"%d" % n, of=owner) for n in range(30)]
    events = await Desk(worker, "key_hash", ExecutionConfig(retry_backoff_ms=100, max_in_flight=1)).run(records)
    assert events[-1].offset == 0


async def test_a_long_line_of_one_key_does_not_grow_the_stack():
    async def worker(_record):
        pass

    owner = partition()
    events = await Desk(worker, "key_hash").run([record(n, of=owner) for n in range(20_000)])
    assert [event.offset for event in events] == list(range(20_000))


async def fails(_record):
    raise RuntimeError("later")


async def waits(_record):
    await asyncio.Event().wait()


@pytest.mark.parametrize("worker", [fails, waits])
async def test_what_has_not_run_comes_back_released_when_we_close_also_those_behind_it(worker):
    desk, owner = Desk(worker, "key_hash", ExecutionConfig(retry_backoff_ms=600_000)), partition()
    desk.work.take([record(n, of=owner) for n in range(4)])
    await desk.work.close(0)
    assert [(event.offset, event.status) for event in desk.events] == [(n, CompletionStatus.RELEASED) for n in range(4)]


async def test_what_follows_one_that_ends_while_we_close_comes_back_released():
    go, events, followers = asyncio.Event(), [], iter([record(n) for n in range(1, 4)])

    async def worker(_record):
        await go.wait()

    def completed(event):
        events.append((event.offset, event.status))
        return next(followers, None)

    engine = AsyncExecutionEngine(worker, QUICK)
    engine.connect(completed)
    engine.submit([record(0)])
    await asyncio.sleep(0)  # it waits, in its task
    closing = asyncio.ensure_future(engine.close(60))
    await asyncio.sleep(0)
    go.set()
    await closing
    assert events == [(0, CompletionStatus.SUCCESS), *((n, CompletionStatus.RELEASED) for n in range(1, 4))]


async def test_what_begins_when_one_ends_begins_in_order():
    began, go = [], asyncio.Event()

    async def worker(item):
        began.append(item.offset)
        if item.offset == 0:
            await go.wait()
            engine.slots = 4  # there is room for all the others at once

    engine = AsyncExecutionEngine(worker, ExecutionConfig(max_in_flight=1))
    ended = [asyncio.Event() for _ in range(4)]
    engine.connect(lambda event: ended[event.offset].set())
    engine.submit([record(n) for n in range(4)])
    go.set()
    for each in ended:
        await asyncio.wait_for(each.wait(), 60)
    await engine.close(0)
    assert began == [0, 1, 2, 3]
