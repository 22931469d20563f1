"""kill -9 between an act and its count, and between a spool's steps: the lifetime numbers still balance."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from tests.sources.workflow.clerk import TASKS
from tests.sources.workflow.samples import enqueue
from tests.stores.conftest import server_url
from tests.stores.spool.shutter import Shuttered

from redrive import Redrive
from redrive.workflow import DeadLetterQueue

ROOT = Path(__file__).parents[3]
POINTS = ("act.before_count=kill@2", "act.after=kill@2")


async def run(where: object, verb: str, failpoints: str = "") -> int:
    """Run a clerk to its end."""
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "REDRIVE_FAILPOINTS": failpoints}
    command = [sys.executable, "-m", "tests.sources.workflow.clerk", str(where), verb]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env)
    return await asyncio.wait_for(process.wait(), 60)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/redrive.db"
    return f"{server_url()}?schema=wf_{uuid4().hex[:8]}"


async def numbers(dlq) -> tuple[dict[str, int], dict[str, int]]:
    stats = await dlq.get_statistics()
    return stats["status_breakdown"], stats["lifetime_stats"]


@pytest.mark.parametrize("point", ["put.before_count=kill@2", "put.after=kill@2"])
async def test_a_task_that_is_exhausted_at_once_is_counted_with_it(url, point):
    app = Redrive(url)
    dlq = DeadLetterQueue(store=app)
    assert (await dlq.get_statistics())["queue_size"] == 0
    assert await run(url, "enqueue", point) == -9
    found, lifetime = await numbers(dlq)
    assert lifetime["exhausted"] == found["exhausted"] == lifetime["enqueued_total"] == (1 if "before" in point else 2)
    await app.close()


@pytest.mark.parametrize("point", POINTS)
async def test_a_task_that_is_archived_is_counted_with_it(url, point):
    app = Redrive(url)
    dlq = DeadLetterQueue(store=app)
    for number in range(TASKS):
        await enqueue(dlq, f"wf_{number}")
    assert await run(url, "archive", point) == -9
    found, lifetime = await numbers(dlq)
    assert lifetime["archived"] == found["archived"] == (1 if "before" in point else 2)
    await app.close()


@pytest.mark.parametrize("point", [*POINTS, "act.before_count=kill@3", "act.after=kill@3"])
async def test_tasks_that_are_cleared_are_counted_as_archived_with_it(url, point):
    app = Redrive(url)
    dlq = DeadLetterQueue(store=app)
    for number in range(TASKS):
        await enqueue(dlq, f"wf_{number}", max_retries=number % 2)
    assert await run(url, "clear", point) == -9
    found, lifetime = await numbers(dlq)
    assert lifetime["archived"] == TASKS - found["pending"] - found["exhausted"] > 0
    await dlq.clear_all()
    assert (await numbers(dlq))[1]["archived"] == TASKS
    await app.close()


@pytest.mark.parametrize(
    "step", ["", "put.before_count", "put.after", "spool.claimed", "spool.forwarded", "spool.left"]
)
async def test_a_spooled_task_without_retries_is_counted_as_exhausted_once(tmp_path, step):
    before = Redrive(store=Shuttered(tmp_path / "store.db"))
    await enqueue(DeadLetterQueue(store=before), "wf_kept", max_retries=0)
    await before.close()
    (tmp_path / "store.db.away").touch()
    if step:
        assert await run(tmp_path, "spool", f"{step}=kill@{3 if step == 'put.after' else 1}") == -9
    assert await run(tmp_path, "spool") == 0
    app = Redrive(store=Shuttered(tmp_path / "store.db"))
    dlq = DeadLetterQueue(store=app)
    found, lifetime = await numbers(dlq)
    assert (found["exhausted"], lifetime["enqueued_total"], lifetime["exhausted"]) == (2, 2, 3)
    kept = await app.store.get((await dlq.get_task("wf_kept")).letter_id)
    assert (kept.cycles, (await dlq.get_task("wf_new")).letter_id != kept.id) == (1, True)
    await app.close()
