"""Task enqueue and retrieval."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest
from tests.sources.workflow.samples import MINUTE, REPOS, TASK, Callback, enqueue, failing

from redrive.errors import DraftError, NotSupported, PolicyError
from redrive.workflow import DeadLetterQueue, DeadLetterStatus, ErrorCategory, FailedTask, RetryPolicy


async def test_a_task_comes_back_as_it_was_enqueued(dlq, clock):
    made = await dlq.enqueue(
        task_id="wf_abc123",
        task=TASK,
        repos=REPOS,
        error="Connection timeout",
        retry_policy=RetryPolicy.EXPONENTIAL,
        max_retries=5,
        metadata={"priority": "high", "slos": {"max_delay_minutes": 15}},
    )
    found = await dlq.get_task("wf_abc123")
    assert found == made
    assert (found.task, found.repos, found.error, found.last_error) == (TASK, REPOS, *["Connection timeout"] * 2)
    assert (found.retry_count, found.max_retries, found.total_attempts) == (0, 5, 0)
    assert (found.retry_policy, found.status) == (RetryPolicy.EXPONENTIAL, DeadLetterStatus.PENDING)
    assert found.next_retry_at - found.failed_at == timedelta(minutes=1)
    assert found.metadata == {"priority": "high", "slos": {"max_delay_minutes": 15}}
    assert {found.failed_at.tzinfo, found.next_retry_at.tzinfo, found.updated_at.tzinfo} == {UTC}


async def test_a_task_survives_as_plain_data(dlq):
    made = await enqueue(dlq)
    assert FailedTask.from_dict(made.to_dict()) == made


async def test_an_unknown_task_is_none(dlq):
    assert await dlq.get_task("wf_none") is None


async def test_tasks_are_listed_oldest_first_and_by_status(dlq, clock):
    for name in "abc":
        await enqueue(dlq, name, retry_policy=RetryPolicy.NEVER if name == "b" else "linear")
        clock.advance(1)
    assert [task.task_id for task in await dlq.list_tasks()] == ["a", "b", "c"]
    assert [task.task_id for task in await dlq.list_tasks(limit=2)] == ["a", "b"]
    assert [task.task_id for task in await dlq.list_tasks(status=DeadLetterStatus.PENDING, limit=None)] == [
        "a",
        "b",
        "c",
    ]
    assert await dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED) == []


# ---------------------------------------------------------------------- the same task_id again


async def test_the_same_id_while_it_waits_is_the_same_task_with_the_newer_error(dlq, clock):
    first = await enqueue(dlq, max_retries=3)
    clock.advance(MINUTE)
    await dlq.run_cycle(failing())
    again = await enqueue(dlq, error=MemoryError("out of memory"))
    assert (again.retry_count, again.error, again.last_error) == (1, first.error, "out of memory")
    assert again.error_category == ErrorCategory.RESOURCE
    assert len(await dlq.list_tasks()) == 1
    assert (await dlq.get_statistics())["lifetime_stats"]["enqueued_total"] == 1


async def test_a_policy_chosen_by_category_follows_the_error_of_the_same_id(dlq, clock):
    await enqueue(dlq, by_category=True, max_retries=3)
    clock.advance(MINUTE)
    await dlq.run_cycle(failing())
    again = await enqueue(dlq, error=MemoryError("out of memory"), by_category=True, max_retries=3)
    assert (again.retry_count, again.max_retries, again.retry_policy) == (1, 3, RetryPolicy.LINEAR)
    assert again.next_retry_at - again.updated_at == timedelta(minutes=10)
    assert [await dlq.get_task("wf_abc123")] == [again] == await dlq.list_tasks(status="pending")
    for minutes in (10, 15):
        clock.advance(minutes * MINUTE)
        assert await dlq.run_cycle(Callback(MemoryError("out of memory"))) == 1
    assert (await dlq.get_task("wf_abc123")).status is DeadLetterStatus.EXHAUSTED


async def test_a_task_waits_for_a_person_while_its_newest_error_is_one_that_no_retry_heals(dlq, clock):
    await enqueue(dlq, by_category=True)
    clock.advance(MINUTE)
    await dlq.run_cycle(failing())
    denied = await enqueue(dlq, error=PermissionError("access denied"), by_category=True)
    assert (denied.status, denied.retry_policy, denied.next_retry_at, denied.retry_count) == (
        DeadLetterStatus.PENDING, RetryPolicy.NEVER, None, 1,
    )  # fmt: skip
    clock.advance(60 * MINUTE)
    assert await dlq.run_cycle(Callback()) == 0
    healed = await enqueue(dlq, error=ConnectionError("connection refused"), by_category=True)
    assert (healed.status, healed.retry_policy, healed.retry_count) == (
        DeadLetterStatus.PENDING, RetryPolicy.EXPONENTIAL, 1,
    )  # fmt: skip
    assert healed.next_retry_at - healed.updated_at == timedelta(minutes=2)
    assert (await dlq.get_statistics())["retry_policies"] == {
        "never": 0, "linear": 0, "exponential": 1, "immediate": 0,
    }  # fmt: skip


async def test_a_policy_that_the_caller_gave_stays_whatever_the_newer_error_is(dlq, clock):
    first = await enqueue(dlq, retry_policy=RetryPolicy.EXPONENTIAL, error_category="network")
    again = await enqueue(dlq, error=PermissionError("access denied"), error_category="permission")
    assert (again.retry_policy, again.next_retry_at) == (RetryPolicy.EXPONENTIAL, first.next_retry_at)


async def test_a_task_whose_caller_wants_no_retries_waits_for_a_person_with_the_newer_error(dlq, clock):
    first = await enqueue(dlq, error="disk full", retry_policy=RetryPolicy.NEVER)
    clock.advance(MINUTE)
    again = await enqueue(dlq, error="connection refused", retry_policy=RetryPolicy.EXPONENTIAL)
    assert (again.error, again.last_error, again.retry_policy) == ("disk full", "connection refused", RetryPolicy.NEVER)
    assert (again.status, again.next_retry_at, again.retry_count) == (DeadLetterStatus.PENDING, None, 0)
    assert again.total_attempts == first.total_attempts
    assert len(await dlq.list_tasks()) == 1


async def test_the_same_id_once_it_is_exhausted_begins_a_new_cycle(dlq, clock):
    await enqueue(dlq, max_retries=0)
    assert (await dlq.get_task("wf_abc123")).status is DeadLetterStatus.EXHAUSTED
    again = await enqueue(dlq, error="disk full", max_retries=2)
    assert (again.status, again.retry_count, again.error, again.last_error) == (
        DeadLetterStatus.PENDING, 0, "Connection timeout", "disk full",
    )  # fmt: skip


async def test_a_new_cycle_has_the_retries_and_the_policy_of_its_own_call(dlq, clock):
    await enqueue(dlq, max_retries=0)
    again = await enqueue(dlq, retry_policy=RetryPolicy.LINEAR, max_retries=2)
    assert (again.max_retries, again.retry_policy) == (2, RetryPolicy.LINEAR)
    for minutes in (5, 10):
        clock.advance(minutes * MINUTE)
        assert await dlq.run_cycle(failing()) == 1
    task = await dlq.get_task("wf_abc123")
    assert (task.status, task.retry_count, task.retry_policy) == (DeadLetterStatus.EXHAUSTED, 2, RetryPolicy.LINEAR)


@pytest.mark.parametrize("end", ["completed", "archived"])
async def test_the_same_id_once_it_is_over_is_a_new_task(dlq, clock, end):
    await enqueue(dlq)
    if end == "completed":
        clock.advance(MINUTE)
        await dlq.run_cycle(Callback())
    else:
        assert await dlq.archive_task("wf_abc123")
    assert (await dlq.get_task("wf_abc123")).status == end
    new = await enqueue(dlq, error="disk full")
    assert (new.error, new.status) == ("disk full", DeadLetterStatus.PENDING)
    assert (await dlq.get_task("wf_abc123")).letter_id == new.letter_id
    assert [task.task_id for task in await dlq.list_tasks(status=end)] == ["wf_abc123"]


# ---------------------------------------------------------------------- what cannot be enqueued


async def test_wrong_words_and_numbers_are_refused_with_what_is_right(dlq):
    with pytest.raises(PolicyError, match="never, linear, exponential, immediate"):
        await enqueue(dlq, retry_policy="sometimes")
    with pytest.raises(PolicyError, match="max_retries is -1"):
        await enqueue(dlq, max_retries=-1)
    with pytest.raises(DraftError, match="error_category"):
        await enqueue(dlq, error_category="strange")
    with pytest.raises(DraftError, match="task_id"):
        await enqueue(dlq, "")


def test_opensearch_is_refused_with_the_way_out():
    with pytest.raises(NotSupported, match="SQLite or PostgreSQL"):
        DeadLetterQueue(opensearch_client=object())


async def test_the_queue_sees_and_touches_nothing_but_its_own_letters(dlq, app):
    await app.enqueue("order.created", {"n": 1})
    await app.enqueue("workflow", {"n": 1}, queue="other")
    await enqueue(dlq)
    assert len(await dlq.list_tasks()) == 1
    assert (await dlq.get_statistics())["queue_size"] == 1
    assert await dlq.clear_all() == 1
    assert len((await app.desk.ls("")).letters) == 2


async def test_operators_see_tasks_as_letters(dlq, app):
    made = await enqueue(dlq)
    [letter] = (await app.desk.ls("queue:workflow payload.task.type:code_sweep")).letters
    assert letter.id == made.letter_id
