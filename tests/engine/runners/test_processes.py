from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import pytest_asyncio
from tests.engine import handlers_for_processes as handlers
from tests.engine.starting import PATIENCE, begin, comes_true, letter, opened, run, soon

from redrive.core.decide import SUCCEEDED, Failed, Interrupted, Lost
from redrive.core.letter import Category
from redrive.core.policy import RetryPolicy
from redrive.engine.handler import build_handler
from redrive.engine.runners.processes import pool
from redrive.engine.runners.processes.frames import Report, pack
from redrive.engine.runners.processes.pool import ProcessEngine


def handler(function, **options):
    return build_handler("order", function, engine="process", **options)


SUCCEED = handler(handlers.succeed)


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


async def pid_in(path: Path) -> int:
    assert await comes_true(lambda: path.exists() and path.read_text())
    return int(path.read_text())  # noqa: ASYNC240 - a few digits


async def is_gone(pid: int) -> bool:
    return await comes_true(lambda: not _is_alive(pid))


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def told(path: Path) -> bytes:
    return json.dumps({"begun": str(path), "gate": str(path)}).encode()


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


# ---------------------------------------------------------------------- starting and ending


async def test_the_time_to_import_a_handler_does_not_count(tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text(
        "import os, threading\n"
        "threading.Event().wait(float(os.environ.get('TIME_TO_IMPORT', '0')))\n"
        "def ship(payload): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import slow_to_import  # noqa: PLC0415

    for limit in (
        0.3,
        3.0,
        20.0,
    ):  # a handler that does nothing may take long on a busy machine; its import takes longer
        monkeypatch.setenv("TIME_TO_IMPORT", f"{limit * 1.5}")
        engine = ProcessEngine(1)
        outcome = await run(engine, handler(slow_to_import.ship, timeout=limit))
        await engine.close(0)
        if outcome is SUCCEEDED:
            break

    assert outcome is SUCCEEDED


async def test_children_that_cannot_start_are_told_of_and_not_stormed(monkeypatch, capfd):
    starts = []
    spawn = pool.Child
    monkeypatch.setattr(pool, "_RESTS", RetryPolicy.constant(0.01))
    monkeypatch.setattr(pool, "Child", lambda *arguments: starts.append(1) or spawn(*arguments))
    monkeypatch.setattr("redrive.engine.runners.processes.child._BOOT", "import sys; sys.exit(4)")
    engine = ProcessEngine(2)
    outcomes = await soon(asyncio.gather(*(begin(engine, SUCCEED) for _ in range(10))))
    await engine.close(0)

    assert set(outcomes) == {
        Interrupted("no worker process can start: its process exited with code 4", wait=outcomes[0].wait)
    }
    assert outcomes[0].wait > 0
    assert len(starts) <= 4


async def test_a_missing_interpreter_is_told_of(monkeypatch):
    monkeypatch.setattr(pool, "_RESTS", RetryPolicy.constant(0.01))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    engine = ProcessEngine(1)
    outcome = await run(engine, SUCCEED)
    await engine.close(0)

    assert "No such file" in outcome.reason


async def test_interrupt_stops_what_runs_and_what_waits_at_once(tmp_path):
    engine, begun = ProcessEngine(1), tmp_path / "begun"
    outcomes = [begin(engine, handler(handlers.wait_at), letter(told(begun))) for _ in range(3)]
    pid = await pid_in(begun)
    engine.interrupt()

    assert [type(outcome.result()) for outcome in outcomes] == [Interrupted] * 3
    assert await is_gone(pid)
    await engine.close(0)


async def test_close_waits_for_what_runs_then_nothing_is_left(tmp_path):
    engine, gate = ProcessEngine(2), tmp_path / "gate"
    os.mkfifo(gate)
    outcome = begin(engine, handler(handlers.wait_on_pipe), letter(told(gate)))
    closing = asyncio.ensure_future(engine.close(PATIENCE))
    (await opened(gate)).close()
    pids = [child._process.pid for child in engine._children]
    await soon(closing)

    assert outcome.result() is SUCCEEDED
    assert not any(_is_alive(pid) for pid in pids)
    assert isinstance(begin(engine, SUCCEED).result(), Interrupted)


async def test_close_kills_what_outlasts_the_grace(tmp_path):
    engine, begun = ProcessEngine(1), tmp_path / "begun"
    outcome = begin(engine, handler(handlers.wait_at), letter(told(begun)))
    pid = await pid_in(begun)
    await soon(engine.close(0.01))

    assert isinstance(outcome.result(), Interrupted)
    assert not _is_alive(pid)


async def test_closing_leaves_no_descriptor_behind():
    before = _descriptors()
    engine = ProcessEngine(2)
    await soon(asyncio.gather(*(begin(engine, SUCCEED) for _ in range(4))))
    await run(engine, handler(handlers.exit_at_once))
    await engine.close(0)

    assert await comes_true(lambda: _descriptors() <= before)  # a child of another test may have gone meanwhile


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_children_leave_signals_to_their_parent(engine, tmp_path, number):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    outcome = begin(engine, handler(handlers.wait_on_pipe), letter(told(gate)))
    with await opened(gate):
        [child] = engine._children
        os.kill(child._process.pid, number)

    assert await soon(outcome) is SUCCEEDED


PARENT = """
import asyncio, sys
from redrive.core.letter import Letter
from redrive.engine.handler import build_handler
from redrive.engine.runners.processes.pool import ProcessEngine
from tests.engine import handlers_for_processes as handlers

async def main():
    engine = ProcessEngine(1)
    handler = build_handler("order", handlers.wait_at, engine="process")
    letter = Letter(id="a", queue="q", kind="order", payload=sys.argv[1].encode())
    engine.start(handler, letter, None, print)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_children_die_in_the_middle_of_a_letter_when_their_parent_is_killed(tmp_path):
    begun = tmp_path / "begun"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", PARENT, told(begun).decode()]
    parent = subprocess.Popen(command, env=environment)  # noqa: ASYNC220 - it takes a millisecond
    try:
        pid = await pid_in(begun)
    finally:
        parent.kill()
        await asyncio.to_thread(parent.wait)

    assert await is_gone(pid)


SCRIPT = """
import asyncio
from redrive.core.letter import Letter
from redrive.engine.handler import build_handler
from redrive.engine.runners.processes.pool import ProcessEngine

class Fatal(Exception):
    pass

def ship(payload: dict):
    raise Fatal("as told")

async def main():
    engine = ProcessEngine(1)
    handler = build_handler("order", ship, engine="process", terminal_errors=(Fatal,))
    outcome = asyncio.get_running_loop().create_future()
    letter = Letter(id="a", queue="q", kind="order", payload=b"{}")
    engine.start(handler, letter, None, lambda _, told: outcome.set_result(told))
    print((await outcome).failure.terminal)
    await engine.close(0)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize("started_by", [["shop.py"], ["-m", "shop"]])
async def test_handlers_of_a_started_script_are_found(tmp_path, started_by):
    (tmp_path / "shop.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, *started_by],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("True\n", "")
