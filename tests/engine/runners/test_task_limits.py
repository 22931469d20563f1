"""Tasks that fail, run out of time or are stopped."""

from __future__ import annotations

import asyncio
import sys

import pytest
from tests.engine.starting import begin, letter, run, soon

from redrive.core.decide import SUCCEEDED, Failed, Interrupted
from redrive.core.letter import Category
from redrive.engine.handler import build_handler
from redrive.engine.runners.tasks import TaskEngine


async def noop(payload):
    pass


async def wait_for_ever(payload):
    await asyncio.Event().wait()


@pytest.fixture
async def engine():
    engine = TaskEngine(cancel_grace=0.05)
    yield engine
    await engine.close(0)


async def test_a_handlers_failure_touches_no_other(engine):
    async def raises(payload):
        raise KeyboardInterrupt

    assert (await run(engine, build_handler("order", raises))).failure.error_type == "KeyboardInterrupt"
    assert await run(engine, build_handler("order", noop)) is SUCCEEDED


async def test_a_handler_that_takes_too_long_has_timed_out(engine):
    outcome = await run(engine, build_handler("order", wait_for_ever, timeout=0.05))

    assert outcome.failure.message == "timed out after 0.05 s"
    assert (outcome.failure.category, outcome.failure.terminal) == (Category.NETWORK, False)


async def test_a_handler_may_clean_up_after_its_time_limit(engine):
    cleaned = []

    async def cleans(payload):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    outcome = await run(engine, build_handler("order", cleans, timeout=0.01))

    assert (outcome.failure.error_type, cleaned) == ("TimeoutError", [True])


async def test_what_a_handler_raises_while_it_is_cancelled_does_not_hide_the_time_limit(engine):
    async def raises(payload):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("oops") from None

    outcome = await run(engine, build_handler("order", raises, timeout=0.01))

    assert outcome.failure.error_type == "TimeoutError"


async def test_what_a_handler_finished_in_spite_of_its_time_limit_is_finished(engine):
    async def finishes(payload):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    assert await run(engine, build_handler("order", finishes, timeout=0.01)) is SUCCEEDED


async def test_a_handler_that_swallows_its_cancellation_is_abandoned_as_timed_out(engine):
    release = asyncio.Event()

    async def stubborn(payload):
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    outcome = begin(engine, build_handler("order", stubborn, timeout=0.01))

    assert (await soon(outcome)).failure.error_type == "TimeoutError"
    release.set()  # its late success is ignored: a second outcome would raise
    await asyncio.sleep(0)


async def test_a_handler_that_cancels_itself_has_failed(engine):
    async def cancels_itself(payload):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    async def raises_cancelled(payload):
        raise asyncio.CancelledError

    for handler in (cancels_itself, raises_cancelled):
        outcome = await run(engine, build_handler("order", handler))
        assert isinstance(outcome, Failed)
        assert outcome.failure.error_type.endswith("CancelledError")


async def test_interrupt_stops_everything_at_once(engine):
    outcomes = [begin(engine, build_handler("order", wait_for_ever, timeout=30)) for _ in range(3)]
    engine.interrupt()

    assert [type(outcome.result()) for outcome in outcomes] == [Interrupted] * 3


async def test_close_waits_for_what_runs():
    engine, gate = TaskEngine(), asyncio.Event()

    async def waits(payload):
        await gate.wait()

    outcome = begin(engine, build_handler("order", waits))
    closing = asyncio.ensure_future(engine.close(30))
    await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await soon(closing)

    assert outcome.result() is SUCCEEDED


async def test_close_stops_what_outlasts_the_grace_and_lets_it_clean_up():
    engine, cleaned = TaskEngine(), []

    async def cleans(payload):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    outcome = begin(engine, build_handler("order", cleans))
    await asyncio.sleep(0)
    await soon(engine.close(0.01))

    assert isinstance(outcome.result(), Interrupted)
    assert cleaned


async def test_a_closed_engine_starts_nothing():
    engine = TaskEngine()
    await engine.close(0)
    await engine.close(0)

    assert isinstance(begin(engine, build_handler("order", noop)).result(), Interrupted)


async def test_tickets_come_back_as_they_are(engine):
    told = []
    for ticket in (None, "a", 17):
        engine.start(build_handler("order", noop), letter(), ticket, lambda *both: told.append(both))
    await asyncio.sleep(0.01) if sys.version_info < (3, 12) else None

    assert told == [(None, SUCCEEDED), ("a", SUCCEEDED), (17, SUCCEEDED)]
