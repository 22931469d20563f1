from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest
import pytest_asyncio
from tests.engine import handlers_for_processes as handlers
from tests.engine.runners.children import SUCCEED, handler, is_gone, pid_in, told
from tests.engine.starting import PATIENCE, begin, comes_true, letter, opened, run, soon

from redrive.core.decide import SUCCEEDED, Failed, Lost
from redrive.core.letter import Category
from redrive.engine.runners.processes.frames import Report, pack
from redrive.engine.runners.processes.pool import ProcessEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine():
    """One child, shared by all tests: each of them must leave the engine in order."""
    engine = ProcessEngine(1)
    yield engine
    await engine.close(0)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def two():
    engine = ProcessEngine(2)
    yield engine
    await engine.close(0)


@pytest_asyncio.fixture(loop_scope="module")
async def pair(two):
    """Two children, both of them started."""
    async with asyncio.timeout(PATIENCE):
        while len(two._idle) < 2:
            await asyncio.gather(*(begin(two, SUCCEED) for _ in range(2)))
            await asyncio.sleep(0.01)
    return two


# ---------------------------------------------------------------------- what handlers get and give


async def test_children_that_are_prepared_have_the_handler_before_any_letter_comes():
    engine = ProcessEngine(2)
    engine.prepare(SUCCEED)
    try:
        assert await comes_true(lambda: len(engine._idle) == 2)
        assert [len(child.recipes) for child in engine._idle] == [1, 1]
        assert await run(engine, SUCCEED) is SUCCEEDED
    finally:
        await engine.close(0)


async def test_a_handler_runs_in_another_process_by_its_import_name(engine):
    assert await run(engine, SUCCEED) is SUCCEEDED
    assert await run(engine, handler(handlers.succeed_async)) is SUCCEEDED


async def test_a_predicate_by_name_judges_the_result_over_there(engine):
    judged = handler(handlers.succeed, succeeded=handlers.is_seventeen)

    assert await run(engine, judged) is SUCCEEDED
    assert (await run(engine, judged, letter(b'{"order": 18}'))).failure.error_type == "ResultRefused"


async def test_the_whole_letter_arrives_as_it_is(engine):
    one = letter(
        b"\x00\xff\n",
        content_type="application/octet-stream",
        headers=(("a", b"\x00\xff"), ("a", b"2")),
        metadata={"n": 1, "deep": [None, 1.5]},
    )
    assert await run(engine, handler(handlers.check_letter), one) is SUCCEEDED


async def test_a_large_payload_does_not_block_the_loop(engine):
    one = letter(b"x" * 64_000_000, content_type="application/octet-stream")
    assert await run(engine, handler(handlers.check_size), one) is SUCCEEDED


async def test_what_handlers_print_is_seen_at_once_and_does_not_reach_the_pipe(capfd):
    engine = ProcessEngine(1)
    assert [await run(engine, handler(handlers.chatter)) for _ in range(3)] == [SUCCEEDED] * 3
    printed = capfd.readouterr()
    await engine.close(0)

    assert printed.out.count("out loud\n") == 3
    assert printed.err.count("under its breath") == 3


async def test_a_letter_that_cannot_be_sent_has_failed_and_the_next_runs(engine):
    assert isinstance(await run(engine, SUCCEED, letter(metadata={"n": 2**70})), Failed)
    assert isinstance(await run(engine, SUCCEED, letter(key="\ud800")), Failed)
    assert await run(engine, SUCCEED) is SUCCEEDED


@pytest.mark.parametrize(
    ("function", "error_type", "terminal"),
    [
        (handlers.raise_fatal, "tests.engine.handlers_for_processes.StillFatal", True),
        (handlers.raise_reject, "Reject", True),
        (handlers.raise_speechless, "tests.engine.handlers_for_processes.raise_speechless.<locals>.Speechless", False),
        (handlers.raise_system_exit, "SystemExit", False),
        (handlers.run_out_of_memory, "MemoryError", False),
    ],
)
async def test_failures_are_judged_in_the_child_by_the_handlers_own_lists(engine, function, error_type, terminal):
    failure = (await run(engine, handler(function, terminal_errors=(handlers.Fatal,)))).failure

    assert (failure.error_type, failure.terminal) == (error_type, terminal)
    assert failure.frames[-1].endswith(function.__name__)


async def test_retry_after_travels(engine):
    assert (await run(engine, handler(handlers.raise_retry_after))).failure.retry_after == 12


async def test_a_payload_that_does_not_decode_is_terminal(engine):
    failure = (await run(engine, SUCCEED, letter(b"[" * 100_000))).failure
    assert (failure.category, failure.terminal) == (Category.VALIDATION, True)


async def test_a_module_that_cannot_be_imported_is_a_clear_failure_of_a_child_that_lives_on(engine, tmp_path):
    outcomes = [await run(engine, _misplaced("no.such.module")), await run(engine, _misplaced("json"))]

    assert "cannot import the handler 'no.such.module:ship'" in outcomes[0].failure.message
    assert "ModuleNotFoundError" in outcomes[0].failure.message
    assert [outcome.failure.terminal for outcome in outcomes] == [False, False]
    [child] = engine._children
    assert await run(engine, SUCCEED) is SUCCEEDED
    assert engine._children == {child}


def _misplaced(module):
    def ship(payload: dict):
        pass

    ship.__module__, ship.__qualname__ = module, "ship"
    return handler(ship)


# ---------------------------------------------------------------------- poison


@pytest.mark.parametrize(
    ("poison", "reason"),
    [
        (handlers.abort, "its process was killed by SIGABRT"),
        (handlers.segfault, "its process was killed by SIGSEGV"),
        (handlers.kill_itself, "its process was killed by SIGKILL"),
        (handlers.exit_at_once, "its process exited with code 3"),
    ],
)
async def test_a_death_is_the_outcome_of_exactly_the_letter_that_ran(pair, tmp_path, poison, reason):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    sibling = begin(pair, handler(handlers.wait_on_pipe), letter(told(gate)))
    waiting = [begin(pair, handler(poison)), *(begin(pair, SUCCEED) for _ in range(5))]

    assert await soon(asyncio.gather(*waiting)) == [Lost(reason), *[SUCCEEDED] * 5]
    assert not sibling.done()
    (await opened(gate)).close()
    assert await soon(sibling) is SUCCEEDED


async def test_an_endless_loop_is_killed_when_its_time_is_up(pair):
    looping, sibling = begin(pair, handler(handlers.loop_endlessly, timeout=0.1)), begin(pair, SUCCEED)

    assert await soon(sibling) is SUCCEEDED
    assert (await soon(looping)).failure.message == "timed out after 0.1 s"
    assert await run(pair, SUCCEED) is SUCCEEDED


async def test_the_time_limit_of_a_letter_does_not_outlast_it(engine):
    assert await run(engine, handler(handlers.succeed, timeout=PATIENCE)) is SUCCEEDED

    assert not engine._limits.by_span[PATIENCE]._held  # a letter without a limit may be the next in this child


async def test_what_a_killed_handler_had_started_dies_with_it(engine, tmp_path):
    begun = tmp_path / "begun"
    for limit in (1.0, 5.0, 30.0):  # it must have started its program before its time is up
        await run(engine, handler(handlers.start_a_program, timeout=limit), letter(told(begun)))
        if begun.exists() and begun.read_text():
            break

    assert await is_gone(await pid_in(begun))


async def test_a_death_is_noticed_even_if_others_hold_the_pipe_open(engine):
    assert await run(engine, handler(handlers.hold_the_pipe_open)) == Lost("its process exited with code 9")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff" + b"a length of 4 GB",
        b"\x00\x00\x00\x03abc",
        b"\x00\x00",
        pack(Report(99)),
        pack(Report(0)),
    ],
)
async def test_garbage_from_a_child_loses_its_letter_and_the_child_is_replaced(engine, garbage):
    one = letter(json.dumps({"garbage": garbage.decode("latin-1")}).encode())
    outcome = await run(engine, handler(handlers.send_garbage), one)

    assert isinstance(outcome, Lost)
    assert await run(engine, SUCCEED) is SUCCEEDED


async def test_a_child_that_closes_its_pipe_is_replaced(engine):
    assert isinstance(await run(engine, handler(handlers.close_the_pipe)), Lost)
    assert await run(engine, SUCCEED) is SUCCEEDED


async def test_a_child_that_dies_idle_costs_no_letter(engine):
    await run(engine, SUCCEED)
    [child] = engine._children
    child._process.kill()
    await asyncio.to_thread(child._process.wait)  # dead, but the loop has not heard of it

    assert await run(engine, SUCCEED) is SUCCEEDED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_children_leave_signals_to_their_parent(engine, tmp_path, number):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    outcome = begin(engine, handler(handlers.wait_on_pipe), letter(told(gate)))
    with await opened(gate):
        [child] = engine._children
        os.kill(child._process.pid, number)

    assert await soon(outcome) is SUCCEEDED
