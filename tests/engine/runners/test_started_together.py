"""Letters of a quick handler that a thread runs one after the other."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.engine.starting import PATIENCE, letter, run, soon

from redrive.core.decide import SUCCEEDED, Failed, Interrupted
from redrive.engine.handler import build_handler
from redrive.engine.runners.contract import STOPPED
from redrive.engine.runners.threads import ThreadEngine
from redrive.testing import FakeClock

WHY = Interrupted("not now")


class Line:
    """A handler whose first letter waits at a gate, and what became of each letter."""

    def __init__(self):
        self.began, self.gate, self.arrived = [], threading.Event(), threading.Event()
        self.threads = set()

    def handle(self, payload: dict):
        self.began.append(payload["n"])
        self.threads.add(threading.current_thread())
        if payload["n"] == 0:
            self.arrived.set()
            self.gate.wait(PATIENCE)
        if payload["n"] == 2:
            raise OSError("down")

    def start(self, engine: ThreadEngine, count: int, **options) -> list[asyncio.Future]:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(count)]
        items = [(letter(b'{"n": %d}' % n), future) for n, future in enumerate(futures)]
        handler = build_handler("order", self.handle, **options)
        engine.start_many(handler, items, lambda ticket, outcome: ticket.set_result(outcome))
        return futures

    async def has_begun(self) -> None:
        await soon(asyncio.to_thread(self.arrived.wait, PATIENCE))


@pytest.fixture
def line():
    line = Line()
    yield line
    line.gate.set()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def engine(clock):
    engine = ThreadEngine(2, clock=clock)
    yield engine
    await engine.close(0)


async def test_they_run_in_order_in_one_thread_and_each_has_an_outcome_of_its_own(engine, line):
    line.gate.set()
    outcomes = await soon(asyncio.gather(*line.start(engine, 4)))
    assert line.began == [0, 1, 2, 3]
    assert len(line.threads) == 1
    assert [type(outcome) for outcome in outcomes] == [type(SUCCEEDED), type(SUCCEEDED), Failed, type(SUCCEEDED)]


async def test_only_letters_of_a_handler_that_was_quick_a_hundred_times_in_a_row_are_started_together(engine, clock):
    handler = build_handler("order", lambda payload: None)
    slow = build_handler("order", lambda payload: clock.advance(0.001))
    assert engine.share(handler) == 1
    for _ in range(100):
        await run(engine, handler)
    assert engine.share(handler) == 16
    for _ in range(100):
        await run(engine, slow)
    assert engine.share(slow) == 1


async def test_those_that_have_not_begun_are_recalled_and_never_begin(engine, line):
    first, *others = line.start(engine, 4)
    await line.has_begun()
    assert engine.holds
    engine.recall({"mails"}, WHY)
    assert engine.holds
    engine.recall({"default"}, WHY)
    assert [future.result() for future in others] == [WHY] * 3
    assert not engine.holds
    line.gate.set()
    assert await soon(first) is SUCCEEDED
    assert line.began == [0]


async def test_those_that_wait_too_long_are_recalled(engine, line, clock):
    first, *others = line.start(engine, 3)
    await line.has_begun()
    engine.recall_late(clock.monotonic(), WHY)
    assert engine.holds
    clock.advance(0.06)
    engine.recall_late(clock.monotonic() - 0.05, WHY)
    assert [future.result() for future in others] == [WHY] * 2
    line.gate.set()
    assert await soon(first) is SUCCEEDED


async def test_when_one_is_out_of_time_another_thread_runs_the_rest(engine, line, clock):
    first, *others = line.start(engine, 3, timeout=5)
    await line.has_begun()
    clock.advance(5)
    outcome = await soon(first)
    assert outcome.failure.error_type == "TimeoutError"
    await soon(asyncio.gather(*others))
    assert (line.began, len(line.threads)) == ([0, 1, 2], 2)


async def test_closing_waits_for_the_one_that_runs_and_gives_the_others_back(engine, line):
    first, *others = line.start(engine, 3)
    await line.has_begun()
    closing = asyncio.ensure_future(engine.close(PATIENCE))
    assert [await soon(future) for future in others] == [STOPPED] * 2
    line.gate.set()
    await soon(closing)
    assert (first.result(), line.began) == (SUCCEEDED, [0])


async def test_an_interruption_gives_all_of_them_back(engine, line):
    futures = line.start(engine, 3)
    await line.has_begun()
    engine.interrupt()
    assert [future.result() for future in futures] == [STOPPED] * 3
    line.gate.set()
    assert line.began == [0]
