"""Which tasks a cycle runs: all that were due when it began, none that became due since."""

from __future__ import annotations

import asyncio

from tests.sources.workflow.samples import Callback, enqueue, failing

from redrive.workflow import DeadLetterQueue


async def test_tasks_that_fail_at_once_do_not_keep_others_of_the_same_cycle_from_running(app, clock):
    dlq = DeadLetterQueue(store=app, concurrency=2)
    for number in range(6):
        await enqueue(dlq, f"high_{number}", retry_policy="immediate", metadata={"priority": "high"})
    for number in range(20):
        await enqueue(dlq, f"low_{number}", retry_policy="immediate", metadata={"priority": "low"})

    async def callback(task, repos):
        clock.advance(0.01)
        raise ConnectionError("connection refused")

    assert await dlq.run_cycle(callback) == 26
    assert {task.retry_count for task in await dlq.list_tasks()} == {1}


async def test_a_cycle_ends_although_the_tasks_that_it_gives_back_are_always_due_again(app, clock):
    dlq = DeadLetterQueue(store=app, concurrency=1)
    for number in range(5):
        await enqueue(dlq, f"wf_{number}", retry_policy="immediate", max_retries=1_000)

    async def time_flies():
        while True:
            clock.advance(2)
            await asyncio.sleep(0)

    callback = failing()
    time = asyncio.create_task(time_flies())
    try:
        assert await asyncio.wait_for(dlq.run_cycle(callback), 20) == 5
    finally:
        time.cancel()
    clock.advance(2)
    assert await dlq.run_cycle(Callback()) == 5


async def test_two_cycles_of_one_queue_run_one_after_the_other(app, clock):
    dlq = DeadLetterQueue(store=app, concurrency=1)
    for number in range(4):
        await enqueue(dlq, f"wf_{number}", retry_policy="immediate")
    running, most = 0, 0

    async def callback(task, repos):
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0)
        running -= 1

    assert sum(await asyncio.gather(dlq.run_cycle(callback), dlq.run_cycle(callback))) == 4
    assert most == 1
