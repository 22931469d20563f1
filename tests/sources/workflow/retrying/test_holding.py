"""What a process holds: nothing is forgotten when it is stopped, when it is cancelled, or while the store is away."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from tests.sources.workflow.samples import Callback, enqueue

from redrive import Redrive
from redrive.errors import StoreClosed, StoreUnavailable
from redrive.sources.workflow.retrying.holding import Holding
from redrive.workflow import DeadLetterQueue, DeadLetterStatus


class Slow:
    """A store that does what it is asked to, and answers some calls only when it may."""

    def __init__(self, store, *slow: str) -> None:
        self.behind, self.slow = store, slow
        self.done, self.may_answer = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        found = getattr(self.behind, name)
        if name not in self.slow:
            return found

        async def call(*given, **named):
            answer = await found(*given, **named)
            self.done.set()
            await self.may_answer.wait()
            return answer

        return call


class Late(Slow):
    """A store that does some calls late, also if their caller has gone meanwhile, as a server does."""

    def __getattr__(self, name):
        found = getattr(self.behind, name)
        if name not in self.slow:
            return found

        async def do(*given, **named):
            await self.may_answer.wait()
            return await found(*given, **named)

        async def call(*given, **named):
            self.done.set()
            self.late = asyncio.ensure_future(do(*given, **named))
            return await asyncio.shield(self.late)

        return call


class Away:
    """A store that is away for the next calls of some names."""

    def __init__(self, store, error=StoreUnavailable) -> None:
        self.behind, self.away, self.error = store, {}, error

    def __getattr__(self, name):
        found = getattr(self.behind, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*given, **named):
            if self.away.get(name, 0) > 0:
                self.away[name] -= 1
                raise self.error("the server is away")
            return await found(*given, **named)

        return call


async def stopped_while(slow: Slow, acting) -> None:
    """Cancel *acting* while the store has done a call and not yet answered it."""
    task = asyncio.create_task(acting)
    await asyncio.wait_for(slow.done.wait(), 20)
    task.cancel()
    await asyncio.sleep(0)
    slow.may_answer.set()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("call", "by_hand"), [("claim", False), ("take", True)])
async def test_a_task_that_was_claimed_at_the_moment_of_a_stop_is_given_back(app, call, by_hand):
    slow = Slow(app.store, call)
    dlq = DeadLetterQueue(store=Redrive(store=slow))
    await enqueue(dlq, retry_policy="immediate")
    callback = Callback()
    await stopped_while(slow, dlq.retry_task("wf_abc123", callback=callback) if by_hand else dlq.run_cycle(callback))
    task = await dlq.get_task("wf_abc123")
    assert (task.status, task.retry_count, callback.calls) == (DeadLetterStatus.PENDING, 0, [])


@pytest.mark.parametrize("by_hand", [False, True])
async def test_the_outcome_of_a_task_that_ended_at_the_moment_of_a_stop_is_kept_and_counted(app, by_hand):
    slow = Slow(app.store, "settle_counted")
    dlq = DeadLetterQueue(store=Redrive(store=slow))
    await enqueue(dlq, retry_policy="immediate")
    callback = Callback()
    await stopped_while(slow, dlq.retry_task("wf_abc123", callback=callback) if by_hand else dlq.run_cycle(callback))
    stats = await dlq.get_statistics()
    assert (stats["status_breakdown"]["completed"], stats["lifetime_stats"]["retry_success"]) == (1, 1)
    assert len(callback.calls) == 1


async def test_stopping_the_processor_waits_for_a_claim_under_way(app):
    slow = Slow(app.store, "claim")
    dlq = DeadLetterQueue(store=Redrive(store=slow))
    await enqueue(dlq, retry_policy="immediate")
    await dlq.start_retry_processor(Callback(), 10)
    await asyncio.wait_for(slow.done.wait(), 20)
    stopping = asyncio.create_task(dlq.stop_retry_processor())
    await asyncio.sleep(0)
    slow.may_answer.set()
    await stopping
    assert (await dlq.get_statistics())["status_breakdown"]["retrying"] == 0
    assert await app.store.workers() == []


# ---------------------------------------------------------------------- the store is away


async def test_an_outcome_is_kept_while_the_store_is_away(app):
    away = Away(app.store)
    dlq = DeadLetterQueue(store=Redrive(store=away))
    await enqueue(dlq, retry_policy="immediate")
    away.away["settle_counted"] = 2
    callback = Callback()
    assert await dlq.run_cycle(callback) == 1
    task = await dlq.get_task("wf_abc123")
    assert (task.status, len(callback.calls)) == (DeadLetterStatus.COMPLETED, 1)
    assert (await app.store.get(task.letter_id)).losses == 0


async def test_what_runs_is_not_stopped_by_a_claim_that_the_store_does_not_answer(app):
    away = Away(app.store)
    dlq = DeadLetterQueue(store=Redrive(store=away), concurrency=2)
    for name in "abc":
        await enqueue(dlq, name, retry_policy="immediate")
    first, second = asyncio.Event(), asyncio.Event()

    async def callback(task, repos):
        if first.is_set():
            away.away["claim"] = 1
            second.set()
            return
        first.set()
        await second.wait()
        for _ in range(20):  # the claim fails meanwhile
            await asyncio.sleep(0)

    with pytest.raises(StoreUnavailable):
        await dlq.run_cycle(callback)
    assert (await dlq.get_statistics())["status_breakdown"] == {
        "pending": 1, "retrying": 0, "exhausted": 0, "completed": 2, "archived": 0,
    }  # fmt: skip


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_stop_ends_although_the_store_takes_nothing_back(app, by_hand):
    away = Away(app.store, StoreClosed)
    dlq = DeadLetterQueue(store=Redrive(store=away))
    await enqueue(dlq, retry_policy="immediate")
    began = asyncio.Event()

    async def callback(task, repos):
        began.set()
        await asyncio.Event().wait()

    acting = dlq.retry_task("wf_abc123", callback=callback) if by_hand else dlq.start_retry_processor(callback, 10)
    running = asyncio.create_task(acting)
    await asyncio.wait_for(began.wait(), 20)
    away.away["settle"] = 1_000
    running.cancel()
    done, _ = await asyncio.wait({running, asyncio.create_task(dlq.stop_retry_processor())}, timeout=20)
    assert len(done) == 2
    assert running.cancelled() or not by_hand


# ---------------------------------------------------------------------- what persons run


async def test_one_manual_retry_that_ends_leaves_the_other_its_lease(app):
    dlq = DeadLetterQueue(store=app)
    await enqueue(dlq, "short")
    await enqueue(dlq, "long")
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def callback(task, repos):
        began.set()
        await goes_on.wait()

    long = asyncio.create_task(dlq.retry_task("long", callback=callback))
    await asyncio.wait_for(began.wait(), 20)
    assert (await dlq.retry_task("short", callback=Callback()))["success"]
    assert await app.store.expired(10) == []
    goes_on.set()
    assert (await long)["success"]
    assert await app.store.workers() == []


async def test_a_sign_of_life_under_way_does_not_bring_a_process_back_that_has_signed_off(app):
    late = Late(app.store, "extend")
    dlq = DeadLetterQueue(store=Redrive(store=late))
    await enqueue(dlq)
    running = asyncio.create_task(dlq.retry_task("wf_abc123", callback=Callback()))
    await asyncio.wait_for(late.done.wait(), 20)
    await asyncio.wait({running}, timeout=0.5)
    late.may_answer.set()
    await running
    await late.late
    assert await app.store.workers() == []


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_second_retry_of_a_task_that_this_process_runs_leaves_the_first_alone(dlq, by_hand):
    await enqueue(dlq, retry_policy="immediate")
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def callback(task, repos):
        began.set()
        await goes_on.wait()

    acting = dlq.retry_task("wf_abc123", callback=callback) if by_hand else dlq.run_cycle(callback)
    first = asyncio.create_task(acting)
    await asyncio.wait_for(began.wait(), 20)
    second = await dlq.retry_task("wf_abc123", callback=Callback())
    assert "is being retried by" in second["error"]
    assert (await dlq.get_task("wf_abc123")).status is DeadLetterStatus.RETRYING
    goes_on.set()
    await first
    assert (await dlq.get_task("wf_abc123")).status is DeadLetterStatus.COMPLETED


async def test_a_manual_retry_goes_on_when_the_processor_stops_and_keeps_its_lease(app, clock):
    dlq = DeadLetterQueue(store=Redrive(store=app.store, sweep_seconds=0.01))
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def callback(task, repos):
        began.set()
        await goes_on.wait()

    await enqueue(dlq)
    await dlq.start_retry_processor(Callback(), 10)
    running = asyncio.create_task(dlq.retry_task("wf_abc123", callback=callback))
    await asyncio.wait_for(began.wait(), 20)
    await dlq.stop_retry_processor()
    assert not (await dlq.get_statistics())["is_processor_running"]
    for _ in range(4):
        clock.advance(20)
        await seen_at(app, clock.wall_us())
        assert await app.store.expired(10) == []
    goes_on.set()
    assert (await running)["success"]


async def test_signs_of_life_reach_the_store_one_after_the_other(app):
    """Of two on their way the older could arrive last, and show a processor as running that has stopped."""
    await app.open()
    late = Late(app.store, "extend")
    held, runs_cycles = Holding(Redrive(store=late), "workflow", "me"), [True]
    first = asyncio.create_task(held.extend(lambda: runs_cycles[0]))
    await asyncio.wait_for(late.done.wait(), 20)
    older, runs_cycles[0] = late.late, False
    second = asyncio.create_task(held.extend(lambda: runs_cycles[0]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert late.late is older
    late.may_answer.set()
    await asyncio.gather(first, second)
    assert [beat.queues for beat in await app.store.workers()] == [()]


async def seen_at(app, moment: int) -> None:
    """Wait until a worker that holds a task has given a sign of life since *moment*."""
    async with asyncio.timeout(20):
        while not any(beat.seen_us >= moment and beat.in_flight for beat in await app.store.workers()):  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_manual_retry_whose_task_was_taken_back_meanwhile_is_no_success(app, clock):
    dlq, other = DeadLetterQueue(store=app), DeadLetterQueue(store=app)
    await enqueue(dlq)

    async def callback(task, repos):
        clock.advance(1_000)
        assert await other._processor.rescue() == 1

    result = await dlq.retry_task("wf_abc123", callback=callback)
    assert (result["success"], result["status"]) == (False, "pending")
    assert "another process took it back" in result["error"]
    assert (await dlq.get_statistics())["lifetime_stats"]["retry_success"] == 0
