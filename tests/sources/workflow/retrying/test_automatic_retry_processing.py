"""Automatic retry processing."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.workflow.samples import MINUTE, REPOS, TASK, Callback, enqueue, failing

from redrive.core.breaker import BreakerRules
from redrive.errors import SettingsError
from redrive.stores.contract import Want
from redrive.workflow import DeadLetterQueue, DeadLetterStatus


async def test_a_retry_that_succeeds_completes_the_task(dlq, clock):
    await enqueue(dlq)
    clock.advance(MINUTE)
    callback = Callback()
    assert await dlq.run_cycle(callback) == 1
    assert callback.calls == [(TASK, REPOS)]
    task = await dlq.get_task("wf_abc123")
    assert (task.status, task.retry_count, task.next_retry_at) == (DeadLetterStatus.COMPLETED, 1, None)
    assert await dlq.list_tasks() == []


async def test_a_retry_that_fails_waits_for_the_next(dlq, clock):
    await enqueue(dlq, error="Connection timeout")
    clock.advance(MINUTE)
    await dlq.run_cycle(failing())
    task = await dlq.get_task("wf_abc123")
    assert (task.status, task.retry_count, task.total_attempts) == (DeadLetterStatus.PENDING, 1, 1)
    assert (task.error, task.last_error) == ("Connection timeout", "connection refused")


async def test_a_callback_that_returns_a_failure_has_failed(dlq, clock):
    for name, result in (("a", {"status": "failed", "error": "no"}), ("b", {"success": False})):
        await enqueue(dlq, name)
        clock.advance(MINUTE)
        await dlq.run_cycle(Callback(result))
        assert (await dlq.get_task(name)).status is DeadLetterStatus.PENDING
        await dlq.archive_task(name)


async def test_what_a_failed_result_is_can_be_configured(app, clock):
    dlq = DeadLetterQueue(store=app, succeeded=lambda result: result == "fine")
    await enqueue(dlq)
    clock.advance(MINUTE)
    await dlq.run_cycle(Callback({"status": "completed"}))
    assert (await dlq.get_task("wf_abc123")).retry_count == 1


async def test_a_plain_function_may_be_the_callback(dlq, clock):
    await enqueue(dlq)
    clock.advance(MINUTE)
    assert await dlq.run_cycle(lambda task, repos: {"status": "completed"}) == 1
    assert (await dlq.get_task("wf_abc123")).status is DeadLetterStatus.COMPLETED


async def test_ready_tasks_run_in_parallel_with_a_bound(app, clock):
    dlq = DeadLetterQueue(store=app, concurrency=3)
    for number in range(7):
        await enqueue(dlq, f"wf_{number}")
    clock.advance(MINUTE)
    running, most, all_three = 0, 0, asyncio.Event()

    async def callback(task, repos):
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            all_three.set()
        await all_three.wait()
        running -= 1

    assert await dlq.run_cycle(callback) == 7
    assert most == 3


async def test_the_processor_runs_in_the_background_and_the_statistics_know(dlq, clock):
    await enqueue(dlq)
    clock.advance(MINUTE)
    ran = asyncio.Event()

    async def callback(task, repos):
        ran.set()

    assert not (await dlq.get_statistics())["is_processor_running"]
    await dlq.start_retry_processor(callback, check_interval_seconds=30)
    await asyncio.wait_for(ran.wait(), 20)
    stats = await dlq.get_statistics()
    assert (stats["is_processor_running"], stats["retry_interval_seconds"]) == (True, 30)
    await dlq.stop_retry_processor()
    assert not (await dlq.get_statistics())["is_processor_running"]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "60"])
async def test_an_interval_that_makes_no_sense_is_refused(dlq, seconds):
    with pytest.raises(SettingsError, match="check_interval_seconds is"):
        await dlq.start_retry_processor(Callback(), check_interval_seconds=seconds)
    assert not (await dlq.get_statistics())["is_processor_running"]


async def test_stopping_leaves_nothing_in_retrying(dlq, clock):
    await enqueue(dlq)
    clock.advance(MINUTE)
    began = asyncio.Event()

    async def callback(task, repos):
        began.set()
        await asyncio.Event().wait()

    await dlq.start_retry_processor(callback, check_interval_seconds=30)
    await asyncio.wait_for(began.wait(), 20)
    assert [task.status for task in await dlq.list_tasks()] == [DeadLetterStatus.RETRYING]
    await dlq.stop_retry_processor()
    task = await dlq.get_task("wf_abc123")
    assert (task.status, task.retry_count) == (DeadLetterStatus.PENDING, 0)


async def test_what_a_dead_process_held_is_retried_again(dlq, app, clock):
    task = await enqueue(dlq, max_retries=1)
    await app.store.take(task.letter_id, lease=5, worker="dead")
    clock.advance(MINUTE)
    assert await dlq.run_cycle(Callback()) == 1
    assert (await dlq.get_task("wf_abc123")).status is DeadLetterStatus.COMPLETED


async def test_lost_letters_of_other_queues_do_not_hide_a_lost_task(dlq, app, clock):
    await app.store.put([app.draft("mail", {}) for _ in range(200)])
    lost = await app.store.claim([Want("default", ("mail",), 200)], lease=1, worker="dead")
    clock.advance(1)
    task = await enqueue(dlq, max_retries=1)
    assert await app.store.take(task.letter_id, lease=5, worker="dead") is not None
    clock.advance(MINUTE)
    assert await dlq.run_cycle(Callback()) == 1
    assert len(await app.store.expired(1_000)) == len(lost) == 200


async def test_two_queues_on_one_store_share_the_work_and_no_task_runs_twice(app, clock):
    one, two = DeadLetterQueue(store=app, concurrency=2), DeadLetterQueue(store=app, concurrency=2)
    for number in range(20):
        await enqueue(one, f"wf_{number}")
    clock.advance(MINUTE)
    callback = Callback()
    assert sum(await asyncio.gather(one.run_cycle(callback), two.run_cycle(callback))) == 20
    assert len(callback.calls) == 20


# ---------------------------------------------------------------------- tasks that need a dependency


async def test_an_open_breaker_holds_retries_and_spends_nothing(app, clock):
    rules = {"payments": BreakerRules(failures=2, open_for=600)}
    dlq = DeadLetterQueue(store=app, breakers=rules, concurrency=1)
    for number in range(5):
        await enqueue(dlq, f"wf_{number}", retry_policy="immediate", breaker="payments")
    callback = failing()
    await dlq.run_cycle(callback)
    assert len(callback.calls) == 2
    held = [task for task in await dlq.list_tasks() if task.held]
    assert len(held) == 3
    assert all("held by breaker 'payments' until" in task.held and task.retry_count == 0 for task in held)
    story = "\n".join((await app.desk.explain(held[0].letter_id)).story)
    assert "held by breaker 'payments'" in story
    assert "due in 10 min" in story
    assert (await app.desk.show(held[0].letter_id)).why == "held by breaker 'payments'"
    clock.advance(60)
    await dlq.run_cycle(callback)
    assert len(callback.calls) == 2


async def test_a_rested_breaker_lets_a_few_through_and_closes(app, clock):
    rules = {"payments": BreakerRules(failures=1, open_for=30, probes=1)}
    dlq = DeadLetterQueue(store=app, breakers=rules, concurrency=1)
    for name in "ab":
        await enqueue(dlq, name, retry_policy="immediate", breaker="payments")
    await dlq.run_cycle(failing())
    clock.advance(61)
    await dlq.run_cycle(Callback())
    clock.advance(61)
    await dlq.run_cycle(Callback())
    assert {task.status for name in "ab" if (task := await dlq.get_task(name))} == {DeadLetterStatus.COMPLETED}


async def test_the_adapter_of_a_task_is_its_breaker(app, clock):
    dlq = DeadLetterQueue(store=app, breakers={"llamaindex": BreakerRules(failures=1)}, concurrency=1)
    for name in "ab":
        await dlq.enqueue(name, {"adapter": "llamaindex"}, [], "timeout", "immediate")
    callback = failing()
    await dlq.run_cycle(callback)
    assert len(callback.calls) == 1


async def test_a_task_without_a_breaker_is_never_held(dlq, clock):
    for number in range(8):
        await enqueue(dlq, f"wf_{number}", retry_policy="immediate")
    callback = failing()
    await dlq.run_cycle(callback)
    assert len(callback.calls) == 8
