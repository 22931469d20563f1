"""Defects that users of the first such queue met, M1 to M10, named after what they saw."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.workflow.samples import MINUTE, Callback, enqueue, failing

from redrive import Redrive
from redrive.errors import StoreError
from redrive.workflow import DeadLetterQueue, DeadLetterStatus


async def test_m1_after_a_restart_the_queue_was_empty(tmp_path):
    url = f"sqlite:///{tmp_path}/redrive.db"
    before = DeadLetterQueue(store=url)
    for number in range(3):
        await enqueue(before, f"wf_{number}")
    await before.shutdown()
    after = DeadLetterQueue(store=url)
    assert [task.task_id for task in await after.list_tasks()] == ["wf_0", "wf_1", "wf_2"]
    await after.shutdown()


async def test_m2_another_program_on_the_same_store_saw_no_tasks(tmp_path):
    url = f"sqlite:///{tmp_path}/redrive.db"
    dlq = DeadLetterQueue(store=url)
    await enqueue(dlq)
    async with Redrive(url) as operator:
        assert len((await operator.desk.ls("queue:workflow")).letters) == 1
    await dlq.shutdown()


async def test_m3_parallel_retries_ran_one_after_the_other(dlq, clock):
    for number in range(3):
        await enqueue(dlq, f"wf_{number}")
    clock.advance(MINUTE)
    met = asyncio.Barrier(3)

    async def callback(task, repos):
        await asyncio.wait_for(met.wait(), 20)  # passes only if all three run at once

    assert await dlq.run_cycle(callback) == 3
    assert (await dlq.get_statistics())["lifetime_stats"]["retry_success"] == 3


async def test_m4_a_returned_failure_was_deleted_as_a_success(dlq, clock):
    await enqueue(dlq)
    clock.advance(MINUTE)
    await dlq.run_cycle(Callback({"status": "failed"}))
    assert (await dlq.get_task("wf_abc123")).retry_count == 1


async def test_m5_a_task_stayed_in_retrying_for_ever_after_a_stop(dlq, clock):
    await enqueue(dlq)
    clock.advance(MINUTE)
    began = asyncio.Event()

    async def callback(task, repos):
        began.set()
        await asyncio.Event().wait()

    await dlq.start_retry_processor(callback, 10)
    await asyncio.wait_for(began.wait(), 20)
    await dlq.stop_retry_processor()
    assert await dlq.list_tasks(status=DeadLetterStatus.RETRYING) == []
    clock.advance(1)
    assert await dlq.run_cycle(Callback()) == 1


async def test_m6_the_same_task_was_listed_twice(dlq):
    for _ in range(2):
        await enqueue(dlq)
    assert len(await dlq.list_tasks()) == 1


@pytest.mark.parametrize("options", [{"max_retries": 0}, {"retry_policy": "never"}])
async def test_m7_a_manual_retry_that_failed_made_the_task_disappear_from_its_list(dlq, options):
    await enqueue(dlq, **options)
    before = (await dlq.get_task("wf_abc123")).status
    await dlq.retry_task("wf_abc123", callback=failing())
    assert [task.task_id for task in await dlq.list_tasks(status=before)] == ["wf_abc123"]


async def test_m8_a_full_queue_lost_the_error_of_the_workflow(app):
    class App:
        dlq = DeadLetterQueue(max_size=1, store=app)

        async def execute_workflow_parallel(self, **_):
            raise ConnectionError("connection refused")

    from redrive.workflow import create_dlq_integration  # noqa: PLC0415 - as the document does

    integration = create_dlq_integration(App())
    await enqueue(App.dlq)
    result = await integration.execute_with_dlq({}, "llamaindex")
    assert (result["error"], result["dlq_enqueued"]) == ("connection refused", False)
    assert "maximum" in result["dlq_error"]


async def test_m9_a_failed_write_was_only_a_line_in_the_log(dlq, app):
    await dlq.get_statistics()
    await app.store.close()
    with pytest.raises(StoreError):
        await enqueue(dlq)
    await app.store.open()


async def test_m9_two_processes_ran_the_same_task(app, clock):
    one, two = DeadLetterQueue(store=app), DeadLetterQueue(store=app)
    await enqueue(one)
    clock.advance(MINUTE)
    callback = Callback()
    assert sorted(await asyncio.gather(one.run_cycle(callback), two.run_cycle(callback))) == [0, 1]


async def test_m10_archived_tasks_could_not_be_listed_or_searched(dlq, app):
    await enqueue(dlq)
    await dlq.archive_task("wf_abc123")
    assert len(await dlq.list_tasks(status=DeadLetterStatus.ARCHIVED)) == 1
    assert len((await app.desk.ls("queue:workflow status:archived error:~timeout")).letters) == 1
