"""Queue full handling."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.workflow.samples import Callback, enqueue
from tests.stores.spool.shutter import Shuttered

from redrive import Redrive
from redrive.errors import QueueFull, SettingsError, StoreUnavailable
from redrive.stores.spool import SpoolStore
from redrive.workflow import DeadLetterQueue


async def test_a_full_queue_refuses_loudly_and_an_exhausted_task_counts(app):
    dlq = DeadLetterQueue(max_size=2, store=app)
    await enqueue(dlq, "a")
    await enqueue(dlq, "b", max_retries=0)
    with pytest.raises(QueueFull):
        await enqueue(dlq, "c")
    with pytest.raises(ValueError, match="maximum of 2"):
        await enqueue(dlq, "c")
    assert (await dlq.get_statistics())["utilization_percent"] == 100.0


async def test_a_task_that_is_kept_may_fail_again_although_the_queue_is_full(app):
    dlq = DeadLetterQueue(max_size=1, store=app)
    await enqueue(dlq, "a")
    assert (await enqueue(dlq, "a", error="disk full")).last_error == "disk full"


async def test_archiving_exhausted_tasks_makes_room(app):
    dlq = DeadLetterQueue(max_size=1, store=app)
    await enqueue(dlq, "a", max_retries=0)
    for task in await dlq.list_tasks(status="exhausted"):
        await dlq.archive_task(task.task_id)
    assert (await enqueue(dlq, "b")).task_id == "b"


def test_without_a_size_the_setting_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("REDRIVE_DLQ_MAX_SIZE", "200")
    url = f"sqlite:///{tmp_path}/redrive.db"
    assert (DeadLetterQueue(store=url).max_size, DeadLetterQueue(300, store=url).max_size) == (200, 300)


def test_sizes_and_bounds_that_make_no_sense_are_told_at_once():
    with pytest.raises(SettingsError) as refused:
        DeadLetterQueue(max_size=0, concurrency=0, store="memory://")
    assert refused.value.problems == [
        "max_size is 0 and must be a whole number of 1 or more",
        "concurrency is 0 and must be a whole number of 1 or more",
    ]


class Closed(Shuttered):
    """… and cannot count either."""

    async def tallies(self, *given):
        self._look()
        return await super().tallies(*given)


async def test_with_a_spool_a_store_that_is_away_loses_no_task(tmp_path):
    behind = Closed(tmp_path / "store.db")
    store = SpoolStore(behind, str(tmp_path / "spool.db"), limit=100)
    app = Redrive(store=store)
    dlq = DeadLetterQueue(store=app)
    behind.shutter.touch()
    task = await enqueue(dlq, retry_policy="immediate")
    assert (task.task_id, task.status, task.error) == ("wf_abc123", "pending", "Connection timeout")
    behind.shutter.unlink()
    async with asyncio.timeout(30):
        while (await store.spooled()).waiting:
            store._woken.set()
            await asyncio.sleep(0.01)
    assert await dlq.run_cycle(Callback()) == 1
    assert (await dlq.get_task("wf_abc123")).letter_id == task.letter_id
    assert (await dlq.get_statistics())["lifetime_stats"]["retry_success"] == 1
    await app.close()


async def test_without_a_spool_a_store_that_is_away_is_said_to_the_caller(tmp_path):
    behind = Closed(tmp_path / "store.db")
    app = Redrive(store=behind)
    dlq = DeadLetterQueue(store=app)
    await dlq.get_statistics()
    behind.shutter.touch()
    with pytest.raises(StoreUnavailable):
        await enqueue(dlq)
    behind.shutter.unlink()
    await app.close()


def test_a_queue_on_a_url_uses_the_spool_of_the_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("REDRIVE_SPOOL", str(tmp_path / "spool.db"))
    dlq = DeadLetterQueue(store=f"sqlite:///{tmp_path}/redrive.db")
    assert isinstance(dlq._home.store, SpoolStore)
