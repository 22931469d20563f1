"""Letters of a quick handler that a child process runs one after the other: each has an outcome of its own."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
import pytest_asyncio
from tests.engine import handlers_for_processes as handlers
from tests.engine.starting import PATIENCE, comes_true, letter, opened, run, soon

from redrive.core.decide import SUCCEEDED, Failed, Interrupted, Lost
from redrive.engine.handler import build_handler
from redrive.engine.runners.contract import STOPPED
from redrive.engine.runners.processes.pool import ProcessEngine
from redrive.testing import FakeClock

WHY = Interrupted("not now")
DIED = Lost("its process exited with code 3")


def handler(function, **options):
    return build_handler("order", function, engine="process", **options)


OBEY = handler(handlers.obey)


class Batches(ProcessEngine):
    """An engine that notes how many outcomes each wake-up took in."""

    def __init__(self, size, **options):
        super().__init__(size, **options)
        self.heard = []

    def reported(self, child, ended, took):
        self.heard.append(len(ended))
        super().reported(child, ended, took)


@pytest.fixture
def clock():
    return FakeClock()


@pytest_asyncio.fixture
async def engine(clock):
    engine = Batches(1, clock=clock)
    assert await run(engine, OBEY, letter(b"{}")) is SUCCEEDED
    yield engine
    await engine.close(0)


@pytest.fixture
def gate(tmp_path):
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


@pytest.fixture
def notes(tmp_path):
    return tmp_path / "notes"


def start(engine, notes, *words, by=OBEY, **fields):
    """Start letters together, each named by its place; return a future for each."""
    futures = [asyncio.get_running_loop().create_future() for _ in words]
    items = []
    for name, (more, future) in enumerate(zip(words, futures, strict=True)):
        body = json.dumps({"note": notes, "name": str(name), **more}, default=str).encode()
        items.append((letter(body, **fields), future))
    engine.start_many(by, items, lambda ticket, outcome: ticket.set_result(outcome))
    return futures


def is_running(notes, name):
    return comes_true(lambda: notes.exists() and notes.read_text().endswith(name))


async def test_they_run_in_order_and_each_has_an_outcome_of_its_own(engine, notes):
    outcomes = await soon(asyncio.gather(*start(engine, notes, {}, {"fail": True}, {}, {})))
    assert notes.read_text() == "0123"
    assert [type(outcome) for outcome in outcomes] == [type(SUCCEEDED), Failed, type(SUCCEEDED), type(SUCCEEDED)]


async def test_one_wake_up_takes_in_many_outcomes(engine, notes):
    await soon(asyncio.gather(*start(engine, notes, *[{}] * 500)))
    assert max(engine.heard) > 10
    assert sum(engine.heard) == 501


async def test_only_letters_of_a_handler_that_was_quick_a_hundred_times_in_a_row_are_started_together(engine):
    pace = engine._quick_paces[OBEY]
    assert engine.share(OBEY) == 1
    for _ in range(100):
        pace.note(0.0001)
    assert engine.share(OBEY) == 16
    pace.note(0.001)
    assert engine.share(OBEY) == 1


async def test_how_long_the_longest_of_them_ran_counts(engine, notes, gate):
    pace = engine._quick_paces[OBEY]
    for _ in range(100):
        pace.note(0.0001)
    futures = start(engine, notes, {}, {"gate": gate}, {})
    pipe = await opened(gate)
    await asyncio.sleep(0.01)  # the child has a clock of its own, which no test moves
    pipe.close()
    await soon(asyncio.gather(*futures))
    assert engine.share(OBEY) == 1


# ---------------------------------------------------------------------- when their child dies


@pytest.mark.parametrize("poison", range(4))
async def test_a_death_costs_exactly_the_letter_that_ran_and_the_others_run_once(engine, notes, poison):
    outcomes = await soon(asyncio.gather(*start(engine, notes, *({"die": n == poison} for n in range(4)))))
    assert outcomes == [DIED if n == poison else SUCCEEDED for n in range(4)]
    assert notes.read_text() == "0123"


async def test_each_of_two_deaths_costs_one_letter(engine, notes):
    deadly = {"die": True}
    assert await soon(asyncio.gather(*start(engine, notes, {}, deadly, {}, deadly, {}))) == [
        SUCCEEDED, DIED, SUCCEEDED, DIED, SUCCEEDED,
    ]  # fmt: skip
    assert notes.read_text() == "01234"


# ---------------------------------------------------------------------- when one of them becomes slow


async def test_those_that_have_not_begun_are_given_back_while_the_slow_one_runs(engine, notes, gate):
    before, slow, *others = start(engine, notes, {}, {"gate": gate}, {}, {})
    await is_running(notes, "1")
    engine.recall({"mails"}, WHY)
    assert engine.holds
    engine.recall({"default"}, WHY)
    assert await soon(asyncio.gather(*others)) == [WHY] * 2
    assert not slow.done()
    (await opened(gate)).close()
    assert await soon(asyncio.gather(before, slow)) == [SUCCEEDED] * 2
    assert await run(engine, OBEY, letter(b"{}")) is SUCCEEDED
    assert notes.read_text() == "01"


async def test_those_that_wait_too_long_are_given_back_and_those_that_have_ended_are_taken_in(
    engine, notes, gate, clock
):
    before, slow, *others = start(engine, notes, {}, {"gate": gate}, {}, {})
    await is_running(notes, "1")
    engine.recall_late(clock.monotonic(), WHY)
    assert before.result() is SUCCEEDED
    assert not any(other.done() for other in others)
    clock.advance(0.06)
    engine.recall_late(clock.monotonic() - 0.05, WHY)
    assert await soon(asyncio.gather(*others)) == [WHY] * 2
    (await opened(gate)).close()
    assert await soon(slow) is SUCCEEDED
    assert await run(engine, OBEY, letter(b"{}")) is SUCCEEDED
    assert not engine.holds
    assert notes.read_text() == "01"


async def test_those_that_wait_for_a_child_are_given_back_too(engine, notes, gate, clock):
    held, *_ = start(engine, notes, {"gate": gate})
    first, *others = start(engine, notes, {}, {}, {})
    clock.advance(0.06)
    engine.recall_late(clock.monotonic() - 0.05, WHY)
    assert await soon(asyncio.gather(*others)) == [WHY] * 2
    (await opened(gate)).close()
    assert await soon(asyncio.gather(held, first)) == [SUCCEEDED] * 2


async def test_one_that_is_out_of_time_fails_and_another_child_runs_the_rest(engine, notes, clock):
    limited = handler(handlers.obey, timeout=5.0)
    before, endless, after = start(engine, notes, {}, {"loop": True}, {}, by=limited)
    await is_running(notes, "1")
    clock.advance(5)
    assert await soon(before) is SUCCEEDED  # although no report of it came before its time was up
    clock.advance(5)
    assert (await soon(endless)).failure.message == "timed out after 5 s"
    assert await soon(after) is SUCCEEDED
    assert notes.read_text() == "012"


# ---------------------------------------------------------------------- sending and ending


async def test_one_that_cannot_be_sent_has_failed_and_the_others_run(engine, notes):
    futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
    bodies = [letter(b"{}"), letter(b"{}", metadata={"n": 2**70}), letter(b"{}")]
    items = list(zip(bodies, futures, strict=True))
    engine.start_many(OBEY, items, lambda ticket, outcome: ticket.set_result(outcome))
    outcomes = await soon(asyncio.gather(*futures))
    assert [type(outcome) for outcome in outcomes] == [type(SUCCEEDED), Failed, type(SUCCEEDED)]


async def test_those_started_together_run_in_one_child_although_another_is_idle(notes, tmp_path):
    engine = ProcessEngine(2)
    engine.prepare(OBEY)
    assert await comes_true(lambda: len(engine._idle) == 2)
    pids = tmp_path / "pids"
    await soon(asyncio.gather(*start(engine, notes, *[{"pid": pids}] * 8)))
    assert len(set(pids.read_text().split())) == 1
    await engine.close(0)


async def test_closing_waits_for_the_one_that_runs_and_gives_the_others_back(engine, notes, gate):
    slow, *others = start(engine, notes, {"gate": gate}, {}, {})
    await is_running(notes, "0")
    closing = asyncio.ensure_future(engine.close(PATIENCE))
    assert await soon(asyncio.gather(*others)) == [STOPPED] * 2
    (await opened(gate)).close()
    await soon(closing)
    assert slow.result() is SUCCEEDED
    assert notes.read_text() == "0"


async def test_an_interruption_keeps_the_outcomes_of_those_that_have_ended(engine, notes, gate):
    futures = start(engine, notes, {}, {"gate": gate}, {})
    await is_running(notes, "1")
    engine.interrupt()
    assert [future.result() for future in futures] == [SUCCEEDED, STOPPED, STOPPED]
