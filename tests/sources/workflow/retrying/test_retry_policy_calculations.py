"""Retry policy calculations (never, linear, exponential, immediate)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.sources.workflow.samples import MINUTE, Callback, enqueue, failing

from redrive import Redrive
from redrive import RetryPolicy as Policy
from redrive.errors import PolicyError
from redrive.workflow import DeadLetterQueue, DeadLetterStatus, ErrorCategory, FailedTask, RetryPolicy

FORMULAS = {
    RetryPolicy.LINEAR: lambda retry_count: 5 * (retry_count + 1),
    RetryPolicy.EXPONENTIAL: lambda retry_count: min(2**retry_count, 60),
}


async def waits(dlq, clock, times: int) -> list[timedelta]:
    """Return the wait before each of so many retries, all of which fail."""
    found = []
    for _ in range(times):
        task = await dlq.get_task("wf_abc123")
        found.append(task.next_retry_at - task.updated_at)
        clock.advance(found[-1].total_seconds())
        assert await dlq.run_cycle(failing()) == 1
    return found


@pytest.mark.parametrize("policy", list(FORMULAS))
async def test_the_formula_holds_exactly_for_every_retry(dlq, clock, policy):
    await enqueue(dlq, retry_policy=policy, max_retries=8)
    expected = [timedelta(minutes=FORMULAS[policy](count)) for count in range(8)]
    assert await waits(dlq, clock, 8) == expected
    assert (await dlq.get_task("wf_abc123")).status is DeadLetterStatus.EXHAUSTED


async def test_immediate_runs_in_the_next_cycle_and_never_in_the_same_one(dlq, clock):
    await enqueue(dlq, retry_policy=RetryPolicy.IMMEDIATE)
    callback = failing()
    assert await dlq.run_cycle(callback) == 1
    clock.advance(0.001)
    assert await dlq.run_cycle(callback) == 1
    assert len(callback.calls) == 2


async def test_never_waits_for_a_person(dlq, clock):
    task = await enqueue(dlq, retry_policy=RetryPolicy.NEVER, max_retries=0)
    assert (task.status, task.next_retry_at, task.retry_policy) == (DeadLetterStatus.PENDING, None, RetryPolicy.NEVER)
    clock.advance(10**7)
    assert await dlq.run_cycle(Callback()) == 0


async def test_a_task_runs_in_the_first_cycle_that_begins_at_its_time_and_not_before(dlq, clock):
    await enqueue(dlq, retry_policy="exponential")
    clock.advance(MINUTE - 1)
    assert await dlq.run_cycle(Callback()) == 0
    clock.advance(1)
    assert await dlq.run_cycle(Callback()) == 1


# ---------------------------------------------------------------------- which policy


@pytest.mark.parametrize(
    ("category", "policy"),
    [
        (ErrorCategory.TRANSIENT, "exponential"), (ErrorCategory.NETWORK, "exponential"),
        (ErrorCategory.RESOURCE, "linear"), (ErrorCategory.PERMISSION, "never"),
        (ErrorCategory.VALIDATION, "never"), (ErrorCategory.PERMANENT, "never"),
    ],
)  # fmt: skip
async def test_the_category_chooses_if_the_caller_names_it(dlq, category, policy):
    assert (await enqueue(dlq, error_category=category)).retry_policy == policy
    assert (await enqueue(dlq, "other", error_category=category.value)).retry_policy == policy


async def test_the_call_wins_over_the_category_and_the_default_comes_last(dlq):
    assert (await enqueue(dlq, "a", error_category="permanent", retry_policy="linear")).retry_policy == "linear"
    assert (await enqueue(dlq, "b", error="something strange")).retry_policy == RetryPolicy.EXPONENTIAL


async def test_a_policy_chosen_by_category_follows_the_newest_failure(dlq, clock):
    await enqueue(dlq, error_category="network", max_retries=5)
    clock.advance(MINUTE)
    await dlq.run_cycle(Callback(MemoryError("out of memory")))
    task = await dlq.get_task("wf_abc123")
    assert (task.retry_policy, task.next_retry_at - task.updated_at) == (RetryPolicy.LINEAR, timedelta(minutes=10))
    clock.advance(10 * MINUTE)
    await dlq.run_cycle(Callback(PermissionError("access denied")))
    task = await dlq.get_task("wf_abc123")
    assert (task.retry_policy, task.status, task.next_retry_at) == (RetryPolicy.NEVER, DeadLetterStatus.PENDING, None)


async def test_a_policy_of_the_caller_never_changes(dlq, clock):
    await enqueue(dlq, retry_policy="exponential", max_retries=5)
    clock.advance(MINUTE)
    await dlq.run_cycle(Callback(PermissionError("access denied")))
    task = await dlq.get_task("wf_abc123")
    assert (task.retry_policy, task.next_retry_at - task.updated_at) == (RetryPolicy.EXPONENTIAL, timedelta(minutes=2))


def test_the_four_words_are_this_queues_policies():
    assert RetryPolicy("linear").value == "linear"
    assert [word.policy for word in RetryPolicy] == [Policy.NEVER, Policy.LINEAR, Policy.EXPONENTIAL, Policy.IMMEDIATE]


async def test_a_value_is_taken_too(dlq):
    task = await enqueue(dlq, retry_policy=RetryPolicy.LINEAR.policy, max_retries=2)
    assert (task.retry_policy, task.max_retries) == (RetryPolicy.LINEAR, 2)


async def test_a_value_brings_its_own_number_of_retries(dlq):
    assert (await enqueue(dlq, "a", retry_policy=Policy(max_attempts=8))).max_retries == 7
    assert (await enqueue(dlq, "b", retry_policy=Policy(max_attempts=8), max_retries=1)).max_retries == 1
    assert (await enqueue(dlq, "c", retry_policy=Policy.NEVER)).max_retries == 0


async def test_tasks_that_name_nothing_get_the_defaults_of_the_settings(app):
    settings = {"dlq_default_retry_policy": "linear", "dlq_default_max_retries": 7}
    task = await enqueue(DeadLetterQueue(store=Redrive(store=app.store, **settings)))
    assert (task.retry_policy, task.max_retries) == (RetryPolicy.LINEAR, 7)


async def test_jitter_is_an_option(app, clock):
    dlq = DeadLetterQueue(store=app, jitter="full")
    task = await enqueue(dlq)
    assert timedelta() <= task.next_retry_at - task.failed_at < timedelta(minutes=1)


async def test_a_registered_function_may_be_the_policy(app, clock):
    dlq = DeadLetterQueue(store=app, backoffs={"payments": lambda attempt: 10.0 * attempt})
    await enqueue(dlq, retry_policy="custom:name=payments", max_retries=2)
    clock.advance(9)
    assert await dlq.run_cycle(failing()) == 0
    clock.advance(1)
    assert await dlq.run_cycle(failing()) == 1
    task = await dlq.get_task("wf_abc123")
    assert (task.retry_policy, task.retry_count, task.max_retries) == ("custom", 1, 2)
    assert (task.next_retry_at - task.updated_at).total_seconds() == 20
    assert FailedTask.from_dict(task.to_dict()) == task
    assert (await dlq.get_statistics())["retry_policies"]["custom"] == 1


async def test_a_process_without_the_function_leaves_the_task_pending(app, clock):
    knows = DeadLetterQueue(store=app, backoffs={"payments": lambda _: 5.0})
    await enqueue(knows, retry_policy=Policy.named("payments"))
    clock.advance(6)
    unknowing = DeadLetterQueue(store=Redrive(store=app.store))
    callback = failing()
    await unknowing.run_cycle(callback)
    task = await knows.get_task("wf_abc123")
    assert (callback.calls, task.status, task.retry_count) == ([], "pending", 0)
    clock.advance(31)
    assert await knows.run_cycle(Callback()) == 1


async def test_a_function_itself_cannot_be_kept_with_a_task(dlq):
    with pytest.raises(PolicyError, match="custom:name=NAME"):
        await enqueue(dlq, retry_policy=Policy.custom(lambda _: 1.0))
