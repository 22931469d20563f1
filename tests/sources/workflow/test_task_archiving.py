"""Task archiving."""

from __future__ import annotations

from tests.sources.workflow.samples import enqueue

from redrive.core.letter import Status
from redrive.sources.workflow.clearing import clear
from redrive.workflow import DeadLetterStatus


async def test_an_archived_task_leaves_the_active_queue_and_its_record_stays(dlq):
    await enqueue(dlq)
    assert await dlq.archive_task("wf_abc123") is True
    assert await dlq.list_tasks() == []
    assert (await dlq.get_task("wf_abc123")).status is DeadLetterStatus.ARCHIVED
    assert (await dlq.get_statistics())["lifetime_stats"]["archived"] == 1


async def test_exhausted_tasks_and_those_of_policy_never_can_be_archived(dlq):
    await enqueue(dlq, "a", max_retries=0)
    await enqueue(dlq, "b", retry_policy="never")
    assert [await dlq.archive_task(name) for name in "ab"] == [True, True]


async def test_what_is_unknown_runs_or_is_over_is_not_archived(dlq, app):
    assert await dlq.archive_task("wf_none") is False
    task = await enqueue(dlq)
    claim = await app.store.take(task.letter_id, lease=60, worker="host-1")
    assert await dlq.archive_task("wf_abc123") is False
    assert claim is not None


async def test_clearing_removes_pending_and_exhausted_tasks_and_is_audited(dlq, app):
    await enqueue(dlq, "a")
    await enqueue(dlq, "b", max_retries=0)
    running = await enqueue(dlq, "c")
    await app.store.take(running.letter_id, lease=60, worker="host-1")
    assert await dlq.clear_all() == 2
    assert [task.task_id for task in await dlq.list_tasks()] == ["c"]
    entry = (await app.desk.audit(limit=1))[0]
    assert (entry.verb, entry.count) == ("clear_all", 2)


async def test_clearing_leaves_what_a_letter_outside_waits_for(dlq, app):
    a, b = await enqueue(dlq, "a"), await enqueue(dlq, "b")
    c = await enqueue(dlq, "c", after=["b"])
    await enqueue(dlq, "d")
    await app.enqueue("report", {}, after=[a.letter_id, c.letter_id])
    assert await dlq.clear_all() == 1
    assert [task.task_id for task in await dlq.list_tasks()] == ["a", "b", "c"]
    assert {task.status for task in await dlq.list_tasks()} == {DeadLetterStatus.PENDING}
    assert (await app.store.get(b.letter_id)).why == "failed elsewhere"  # it was not touched, and brought back


async def test_tasks_that_wait_only_for_each_other_are_cleared_together(dlq, app):
    await enqueue(dlq, "a", max_retries=0)
    await enqueue(dlq, "b", after=["a"])
    await enqueue(dlq, "c", after=["b"], after_failure="fail")
    assert await dlq.clear_all() == 3
    assert await dlq.list_tasks() == []
    entry = (await app.desk.audit(limit=1))[0]
    assert (entry.verb, entry.count) == ("clear_all", 3)


async def test_clearing_many_tasks_passes_over_one_that_began_to_run_meanwhile(dlq, app):
    tasks = [await enqueue(dlq, f"wf_{number}") for number in range(5)]
    found = {task.letter_id: Status.PENDING for task in tasks}
    await app.store.take(tasks[2].letter_id, lease=60, worker="host-1")
    assert await clear(app.store, found, "ada", "workflow") == 4
    assert await app.store.add_up("workflow", {}) == {"archived": 4}
    assert [task.task_id for task in await dlq.list_tasks()] == ["wf_2"]


async def test_clearing_touches_no_other_queue(dlq, app):
    other = await app.enqueue("order", {})
    await enqueue(dlq, "a")
    assert await dlq.clear_all() == 1
    assert (await app.store.get(other.id)).status is Status.PENDING
