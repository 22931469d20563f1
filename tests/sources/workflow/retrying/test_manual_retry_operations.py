"""Manual retry operations."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.workflow.samples import Callback, enqueue, failing

from redrive import Redrive
from redrive.core.breaker import BreakerRules
from redrive.core.facts import TaskMoved
from redrive.errors import Reject, SourceError, TaskNotFound
from redrive.workflow import DeadLetterQueue, DeadLetterStatus


async def test_a_pending_task_runs_now_and_the_caller_gets_the_result(dlq):
    await enqueue(dlq)
    result = await dlq.retry_task("wf_abc123", callback=Callback({"status": "completed", "n": 1}))
    assert (result["success"], result["error"], result["result"]) == (True, None, {"status": "completed", "n": 1})
    assert (await dlq.get_task("wf_abc123")).status is DeadLetterStatus.COMPLETED


async def test_a_failed_retry_says_why_and_counts(dlq):
    await enqueue(dlq)
    result = await dlq.retry_task("wf_abc123", callback=failing())
    assert (result["success"], result["error"]) == (False, "connection refused")
    task = await dlq.get_task("wf_abc123")
    assert (task.status, task.retry_count) == (DeadLetterStatus.PENDING, 1)


@pytest.mark.parametrize(
    ("options", "status"), [({"max_retries": 0}, "exhausted"), ({"retry_policy": "never"}, "pending")]
)
async def test_a_dead_task_that_fails_again_stays_what_it_was(dlq, options, status):
    await enqueue(dlq, **options)
    assert not (await dlq.retry_task("wf_abc123", callback=failing()))["success"]
    task = await dlq.get_task("wf_abc123")
    assert (task.status, task.next_retry_at, task.total_attempts) == (status, None, 1)


@pytest.mark.parametrize("error", [PermissionError("access denied"), MemoryError(), Reject("gone"), TimeoutError()])
@pytest.mark.parametrize(
    ("options", "status"),
    [({"error_category": "network", "max_retries": 0}, "exhausted"), ({"error_category": "permission"}, "pending")],
)
async def test_a_dead_task_stays_what_it_was_whatever_its_newest_error_is(dlq, options, status, error):
    before = await enqueue(dlq, **options)
    assert not (await dlq.retry_task("wf_abc123", callback=Callback(error)))["success"]
    task = await dlq.get_task("wf_abc123")
    assert (task.status, task.retry_policy, task.next_retry_at) == (status, before.retry_policy, None)


async def test_a_task_is_counted_as_exhausted_once_however_often_it_is_retried_by_hand(dlq, app):
    moved = []
    app.hub.listen(lambda fact: moved.append(fact.event) if isinstance(fact, TaskMoved) else None)
    await enqueue(dlq, max_retries=0)
    for _ in range(2):
        await dlq.retry_task("wf_abc123", callback=failing())
    lifetime = (await dlq.get_statistics())["lifetime_stats"]
    assert (lifetime["exhausted"], lifetime["retry_failed"], lifetime["manually_retried"]) == (1, 2, 2)
    assert moved == ["enqueued", "exhausted", "retried", "retried"]


async def test_an_exhausted_task_can_be_healed_by_hand(dlq):
    await enqueue(dlq, max_retries=0)
    assert (await dlq.retry_task("wf_abc123", callback=Callback()))["success"]
    assert (await dlq.get_statistics())["lifetime_stats"]["manually_retried"] == 1


async def test_an_unknown_task_is_an_error_that_is_also_a_value_error(dlq):
    with pytest.raises(TaskNotFound, match="wf_none"):
        await dlq.retry_task("wf_none", callback=Callback())
    with pytest.raises(ValueError, match="wf_none"):
        await dlq.retry_task("wf_none", callback=Callback())


async def test_without_a_callback_the_way_out_is_named(dlq):
    await enqueue(dlq)
    with pytest.raises(SourceError, match="start_retry_processor"):
        await dlq.retry_task("wf_abc123")


async def test_a_task_that_runs_elsewhere_is_not_run_twice(dlq, app):
    task = await enqueue(dlq)
    await app.store.take(task.letter_id, lease=60, worker="host-1")
    result = await dlq.retry_task("wf_abc123", callback=Callback())
    assert (result["success"], result["error"]) == (False, "is being retried by host-1")


async def test_a_task_that_is_over_is_not_run_again(dlq):
    await enqueue(dlq)
    await dlq.archive_task("wf_abc123")
    assert (await dlq.retry_task("wf_abc123", callback=Callback()))["error"] == "is archived"


async def test_an_open_breaker_does_not_stop_a_person(app):
    dlq = DeadLetterQueue(store=app, breakers={"payments": BreakerRules(failures=1)}, concurrency=1)
    await enqueue(dlq, retry_policy="immediate", breaker="payments")
    await dlq.run_cycle(failing())
    assert (await dlq.retry_task("wf_abc123", callback=Callback()))["success"]


async def test_a_manual_retry_that_is_cancelled_gives_the_task_back(dlq):
    await enqueue(dlq)
    began = asyncio.Event()

    async def callback(task, repos):
        began.set()
        await asyncio.Event().wait()

    run = asyncio.create_task(dlq.retry_task("wf_abc123", callback=callback))
    await asyncio.wait_for(began.wait(), 20)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    task = await dlq.get_task("wf_abc123")
    assert (task.status, task.retry_count) == (DeadLetterStatus.PENDING, 0)


@pytest.mark.parametrize("by_hand", ["a task", "a cycle"])
async def test_a_task_that_a_person_runs_for_longer_than_a_lease_is_taken_by_no_other_process(app, clock, by_hand):
    dlq = DeadLetterQueue(store=Redrive(store=app.store, sweep_seconds=0.01))
    await enqueue(dlq)
    clock.advance(60)
    goes_on = asyncio.Event()

    async def callback(_task, _repos):
        await goes_on.wait()

    acting = dlq.retry_task("wf_abc123", callback=callback) if by_hand == "a task" else dlq.run_cycle(callback)
    running = asyncio.create_task(acting)
    for _ in range(4):
        await seen_at(app, clock.wall_us())
        assert not (await dlq.get_statistics())["is_processor_running"]
        assert await app.store.expired(10) == []
        clock.advance(20)
    goes_on.set()
    assert await running
    assert (await dlq.get_task("wf_abc123")).status is DeadLetterStatus.COMPLETED
    assert await app.store.workers() == []


async def seen_at(app, moment: int) -> None:
    """Wait until a worker that holds a task has given a sign of life since *moment*."""
    async with asyncio.timeout(20):
        while not any(beat.seen_us >= moment and beat.in_flight for beat in await app.store.workers()):  # noqa: ASYNC110
            await asyncio.sleep(0)
