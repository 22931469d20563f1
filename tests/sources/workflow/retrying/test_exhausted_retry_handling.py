"""Exhausted retry handling."""

from __future__ import annotations

from collections import Counter

from tests.sources.workflow.samples import Callback, enqueue, failing

from redrive.errors import Reject
from redrive.workflow import DeadLetterStatus


async def test_max_retries_counts_retries_after_the_first_failure(dlq, clock):
    await enqueue(dlq, max_retries=3, retry_policy="immediate")
    callback = failing()
    for _ in range(6):
        clock.advance(1)
        await dlq.run_cycle(callback)
    task = await dlq.get_task("wf_abc123")
    assert len(callback.calls) == 3
    assert (task.status, task.retry_count, task.next_retry_at) == (DeadLetterStatus.EXHAUSTED, 3, None)
    assert (task.error, task.last_error) == ("Connection timeout", "connection refused")


async def test_no_retries_at_all_is_valid(dlq):
    assert (await enqueue(dlq, max_retries=0)).status is DeadLetterStatus.EXHAUSTED


async def test_exhausted_tasks_can_be_counted_by_category(dlq):
    for name, category in (("a", "network"), ("b", "network"), ("c", "resource")):
        await enqueue(dlq, name, error_category=category, max_retries=0)
    exhausted = await dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED)
    assert Counter(task.error_category for task in exhausted) == {"network": 2, "resource": 1}


async def test_total_attempts_count_over_all_cycles(dlq, clock):
    await enqueue(dlq, max_retries=1, retry_policy="immediate")
    clock.advance(1)
    await dlq.run_cycle(failing())
    await enqueue(dlq, error="again", max_retries=1, retry_policy="immediate")
    clock.advance(1)
    await dlq.run_cycle(failing())
    task = await dlq.get_task("wf_abc123")
    assert (task.retry_count, task.total_attempts, task.status) == (1, 2, DeadLetterStatus.EXHAUSTED)


async def test_an_operators_replay_gives_an_exhausted_task_another_cycle(dlq, app, clock):
    task = await enqueue(dlq, max_retries=0)
    await app.desk.replay(task.letter_id, reason="fixed")
    clock.advance(1)
    assert await dlq.run_cycle(Callback()) == 1
    assert (await dlq.get_task("wf_abc123")).status is DeadLetterStatus.COMPLETED


async def test_the_retries_of_a_replayed_task_are_counted_as_those_of_a_new_one(dlq, app, clock):
    task = await enqueue(dlq, max_retries=2, retry_policy="immediate")
    clock.advance(1)
    for _ in range(2):
        await dlq.run_cycle(failing())
        clock.advance(1)
    await app.desk.replay(task.letter_id, reason="fixed")
    counts = []
    for _ in range(3):
        await dlq.run_cycle(failing())
        clock.advance(1)
        counts.append((await dlq.get_task("wf_abc123")).retry_count)
    found = await dlq.get_task("wf_abc123")
    assert (counts, found.status, found.total_attempts) == ([0, 1, 2], DeadLetterStatus.EXHAUSTED, 5)


async def test_a_callback_that_rejects_the_task_waits_for_a_person(dlq, clock):
    await enqueue(dlq, max_retries=5, retry_policy="immediate")
    clock.advance(1)
    await dlq.run_cycle(Callback(Reject("this repo is gone")))
    task = await dlq.get_task("wf_abc123")
    assert (task.status, task.next_retry_at) == (DeadLetterStatus.PENDING, None)
