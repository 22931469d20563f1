"""kill -9 of processors while 1,000 tasks retry: nothing is lost, nothing stays in retrying, the numbers balance."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from tests.stores.conftest import server_url

from redrive import Redrive
from redrive.workflow import DeadLetterQueue

TASKS, KILLS, MEMBERS, PATIENCE = 1_000, 6, 2, 60.0
ROOT = Path(__file__).parents[4]

pytestmark = pytest.mark.slow


async def prepare(url: str) -> asyncio.subprocess.Process:
    """Return a process that has started, and waits to be let go."""
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "tests.sources.workflow.member", url]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe)
    await asyncio.wait_for(process.stdout.readline(), 60)
    return process


def let_go(process: asyncio.subprocess.Process) -> asyncio.subprocess.Process:
    process.stdin.write(b"go\n")
    return process


async def kill(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()


async def open_tasks(dlq) -> int:
    found = (await dlq.get_statistics())["status_breakdown"]
    return found["pending"] + found["retrying"]


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
async def test_killed_processors_lose_nothing(name, tmp_path):
    url = f"sqlite:///{tmp_path}/redrive.db" if name == "sqlite" else f"{server_url()}?schema=wf_{uuid4().hex[:8]}"
    app = Redrive(url)
    dlq = DeadLetterQueue(store=app)
    for number in range(TASKS):
        await dlq.enqueue(f"wf_{number}", {"n": number}, [], "timeout", "immediate", 2)
    prepared = [await prepare(url) for _ in range(MEMBERS + KILLS)]  # together, each would take eight times as long
    waiting = list(prepared)
    members = [let_go(waiting.pop()) for _ in range(MEMBERS)]
    try:
        for turn in range(KILLS):
            before = await open_tasks(dlq)
            assert before > 0  # each kill strikes while tasks are open
            async with asyncio.timeout(PATIENCE):
                while before - await open_tasks(dlq) < min(25, before):  # noqa: ASYNC110 - other processes work
                    await asyncio.sleep(0.01)
            await kill(members[turn % MEMBERS])
            members[turn % MEMBERS] = let_go(waiting.pop())
        async with asyncio.timeout(PATIENCE):
            while await open_tasks(dlq):  # noqa: ASYNC110 - other processes work
                await asyncio.sleep(0.05)
    finally:
        for process in prepared:
            if process.returncode is None:
                await kill(process)
    stats = await dlq.get_statistics()
    found, lifetime = stats["status_breakdown"], stats["lifetime_stats"]
    assert found["retrying"] == 0
    assert found["completed"] + found["exhausted"] == lifetime["enqueued_total"] == TASKS
    exhausted = await dlq.list_tasks(status="exhausted", limit=None)
    assert {task.task_id for task in exhausted if task.task["n"] % 10 == 0} == {f"wf_{n}" for n in range(0, TASKS, 10)}
    failed = sum(task.retry_count for task in exhausted)  # no other task failed
    assert (lifetime["retry_success"], lifetime["exhausted"]) == (found["completed"], found["exhausted"])
    assert lifetime["retry_failed"] == failed
    await app.close()
