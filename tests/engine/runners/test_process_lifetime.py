"""When child processes start, and that they end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine import handlers_for_processes as handlers
from tests.engine.runners.children import SUCCEED, handler, is_alive, is_gone, pid_in, told
from tests.engine.starting import PATIENCE, begin, comes_true, letter, opened, run, soon

from redrive.core.decide import SUCCEEDED, Interrupted
from redrive.core.policy import RetryPolicy
from redrive.engine.runners.processes import pool
from redrive.engine.runners.processes.pool import ProcessEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
    monkeypatch.setattr("redrive.engine.runners.processes.starts._RESTS", RetryPolicy.constant(0.01))
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
    monkeypatch.setattr("redrive.engine.runners.processes.starts._RESTS", RetryPolicy.constant(0.01))
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
    assert not any(is_alive(pid) for pid in pids)
    assert isinstance(begin(engine, SUCCEED).result(), Interrupted)


async def test_close_kills_what_outlasts_the_grace(tmp_path):
    engine, begun = ProcessEngine(1), tmp_path / "begun"
    outcome = begin(engine, handler(handlers.wait_at), letter(told(begun)))
    pid = await pid_in(begun)
    await soon(engine.close(0.01))

    assert isinstance(outcome.result(), Interrupted)
    assert not is_alive(pid)


async def test_closing_leaves_no_descriptor_behind():
    before = _descriptors()
    engine = ProcessEngine(2)
    await soon(asyncio.gather(*(begin(engine, SUCCEED) for _ in range(4))))
    await run(engine, handler(handlers.exit_at_once))
    await engine.close(0)

    assert await comes_true(lambda: _descriptors() <= before)  # a child of another test may have gone meanwhile


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


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
