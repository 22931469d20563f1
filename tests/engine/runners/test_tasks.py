from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys

import pytest
from tests.engine.starting import begin, letter, run, soon

from redrive.core.decide import SUCCEEDED, Failed, Interrupted
from redrive.engine.handler import build_handler
from redrive.engine.runners.tasks import TaskEngine

SHADE = contextvars.ContextVar("SHADE", default="none")


async def noop(payload):
    pass


async def wait_for_ever(payload):
    await asyncio.Event().wait()


@pytest.fixture
async def engine():
    engine = TaskEngine(cancel_grace=0.05)
    yield engine
    await engine.close(0)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager start came with 3.12")
async def test_a_handler_that_never_suspends_is_done_before_start_returns(engine):
    assert begin(engine, build_handler("order", noop, timeout=30)).result() is SUCCEEDED


async def test_a_handler_that_suspends_is_done_later(engine):
    gate = asyncio.Event()

    async def waits(payload):
        await gate.wait()

    outcome = begin(engine, build_handler("order", waits))
    await asyncio.sleep(0)
    assert not outcome.done()
    gate.set()

    assert await soon(outcome) is SUCCEEDED


async def test_a_handler_has_a_task_and_a_context_of_its_own(engine):
    seen = []

    async def looks(payload):
        seen.append(asyncio.current_task())
        SHADE.set("blue")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(noop(payload))

    assert await run(engine, build_handler("order", looks)) is SUCCEEDED
    assert seen != [asyncio.current_task()]
    assert SHADE.get() == "none"


async def test_a_handler_that_begins_at_the_end_of_another_sees_nothing_of_it(engine):
    seen, ended = [], asyncio.get_running_loop().create_future()

    async def paints(payload):
        await asyncio.sleep(0)
        seen.append((asyncio.current_task(), SHADE.get()))
        SHADE.set("blue")

    handler = build_handler("order", paints)

    def begin_the_next(*_first):
        engine.start(handler, letter(), 2, lambda *told: ended.set_result(told))

    engine.start(handler, letter(), 1, begin_the_next)

    assert await soon(ended) == (2, SUCCEEDED)
    assert [shade for _, shade in seen] == ["none", "none"]
    assert len({task for task, _ in seen}) == 2


async def one_after_the_other(engine, handler, count=2):
    """Start letters, each from within the call that tells of the end of the one before; return their outcomes."""
    ended, outcomes = asyncio.get_running_loop().create_future(), []

    def told(_ticket, outcome):
        outcomes.append(outcome)
        if len(outcomes) == count:
            ended.set_result(None)
        else:
            engine.start(handler, letter(), len(outcomes), told)

    engine.start(handler, letter(), 0, told)
    await soon(ended)
    return outcomes


async def test_a_letter_that_is_started_at_the_end_of_another_runs_in_its_task(engine):
    tasks = []

    async def looks(payload):
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0)

    await one_after_the_other(engine, build_handler("order", looks), 3)
    assert len(set(tasks)) == 1


async def test_a_task_goes_on_after_a_failure_and_the_next_letter_sees_nothing_of_it(engine):
    tasks, seen, errors = [], [], []

    async def fails(payload):
        tasks.append(asyncio.current_task())
        seen.append(sys.exc_info()[1])
        await asyncio.sleep(0)
        errors.append(ValueError("no"))
        raise errors[-1]

    outcomes = await one_after_the_other(engine, build_handler("order", fails), 3)
    assert [outcome.failure.message for outcome in outcomes] == ["no"] * 3
    assert seen + [error.__context__ for error in errors] == [None] * 6
    assert len(set(tasks)) == 1


async def leaves_a_variable(payload):
    SHADE.set("blue")


async def leaves_a_variable_that_cannot_be_compared(payload):
    SHADE.set(Incomparable())


async def leaves_a_callback(payload):
    asyncio.current_task().add_done_callback(lambda _task: None)


async def leaves_a_cancellation(payload):
    asyncio.current_task().cancel()


async def swallows_a_cancellation(payload):
    asyncio.current_task().cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)


async def leaves_a_cancellation_that_was_taken_back(payload):
    asyncio.current_task().cancel()
    asyncio.current_task().uncancel()


class Incomparable:
    def __eq__(self, other):
        raise ValueError("the truth of this is ambiguous")

    __hash__ = None


TASKS = []
LEAVES_NO_TRACE = pytest.mark.skipif(sys.version_info >= (3, 13), reason="on Python 3.13 uncancel() undoes it")


@pytest.mark.parametrize(
    "trace",
    [
        leaves_a_variable, leaves_a_variable_that_cannot_be_compared, leaves_a_callback, leaves_a_cancellation,
        swallows_a_cancellation, pytest.param(leaves_a_cancellation_that_was_taken_back, marks=LEAVES_NO_TRACE),
    ],
)  # fmt: skip
@pytest.mark.parametrize("suspends", [False, True])
async def test_a_task_that_bears_a_trace_of_its_letter_runs_no_other(trace, suspends):
    SHADE.set(Incomparable() if trace is leaves_a_variable_that_cannot_be_compared else "none")
    engine = TaskEngine()
    TASKS.clear()

    async def leaves(payload):
        TASKS.append(asyncio.current_task())
        if suspends:
            await asyncio.sleep(0)
        await trace(payload)

    outcomes = await one_after_the_other(engine, build_handler("order", leaves), 2)
    await engine.close(0)
    assert len(set(TASKS)) == 2
    assert outcomes[1] is SUCCEEDED


async def test_a_letter_with_another_handler_gets_a_task_of_its_own(engine):
    tasks, ended = [], asyncio.get_running_loop().create_future()

    async def looks(payload):
        tasks.append(asyncio.current_task())

    def begin_the_other(*_first):
        engine.start(build_handler("order", looks, timeout=1), letter(), 2, lambda *told: ended.set_result(told))

    engine.start(build_handler("order", looks), letter(), 1, begin_the_other)
    assert await soon(ended) == (2, SUCCEEDED)
    assert len(set(tasks)) == 2


async def test_the_time_of_each_letter_of_a_task_counts_from_its_own_beginning(engine):
    loop, began = asyncio.get_running_loop(), []

    async def looks(payload):
        await asyncio.sleep(0)
        (run,) = engine._open
        began.append(run.began)
        while loop.time() <= run.began:
            pass

    await one_after_the_other(engine, build_handler("order", looks, timeout=30), 3)
    assert len(set(began)) == 3


async def test_thousands_that_never_suspend_make_no_pile_of_calls(engine):
    assert set(await one_after_the_other(engine, build_handler("order", noop), 5_000)) == {SUCCEEDED}


async def test_a_task_that_was_out_of_time_once_runs_no_other_letter(engine):
    tasks = []

    async def finishes_in_spite_of_it(payload):
        tasks.append(asyncio.current_task())
        if len(tasks) == 1:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            asyncio.current_task().uncancel()

    outcomes = await one_after_the_other(engine, build_handler("order", finishes_in_spite_of_it, timeout=0.01))
    assert (outcomes, len(set(tasks))) == ([SUCCEEDED, SUCCEEDED], 2)


@pytest.mark.parametrize("suspends", [False, True])
async def test_a_letter_that_is_given_to_a_task_while_the_engine_stops_is_not_run(engine, suspends):
    ran, told = [], []

    async def runs(payload):
        ran.append(payload)
        if suspends:
            await asyncio.sleep(0)

    handler = build_handler("order", runs)

    def start_one_and_stop(ticket, outcome):
        told.append((ticket, outcome))
        engine.start(handler, letter(), 2, lambda *others: told.append(others))
        engine.interrupt()

    engine.start(handler, letter(), 1, start_one_and_stop)
    await engine.close(30)

    assert [ticket for ticket, _ in told] == [1, 2]
    assert isinstance(told[1][1], Interrupted)
    assert len(ran) == 1


@pytest.mark.parametrize("suspends", [False, True])
async def test_a_letter_is_not_lost_when_the_one_who_is_told_raises(engine, suspends):
    told = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    async def runs(payload):
        if suspends:
            await asyncio.sleep(0)

    handler = build_handler("order", runs)

    def start_one_and_raise(_ticket, _outcome):
        engine.start(handler, letter(), 2, lambda *second: told.set_result(second))
        raise RuntimeError("a defect of ours")

    engine.start(handler, letter(), 1, start_one_and_raise)
    ticket, outcome = await soon(told)
    assert (ticket, type(outcome)) == (2, Failed)
