"""Tasks whose process died: they keep their policy, run alone, and are dead after three deaths."""

from __future__ import annotations

import pytest
from tests.sources.workflow.samples import MINUTE, Callback, enqueue

from redrive.core.facts import TaskMoved
from redrive.workflow import DeadLetterQueue, DeadLetterStatus, RetryPolicy


async def lose(app, clock, task) -> None:
    """Let a process die while it runs *task*."""
    assert await app.store.take(task.letter_id, lease=60, worker="host-that-dies") is not None
    clock.advance(61)


async def convict(dlq, app, clock, task) -> None:
    """Let three processes die while they run *task*."""
    for _ in range(3):
        await lose(app, clock, task)
        await dlq._processor.rescue()


@pytest.mark.parametrize("options", [{"retry_policy": "exponential"}, {"error_category": "network"}])
async def test_a_task_whose_process_died_keeps_its_policy(dlq, app, clock, options):
    task = await enqueue(dlq, **options)
    await lose(app, clock, task)
    await dlq._processor.rescue()
    found = await dlq.get_task("wf_abc123")
    assert (found.status, found.retry_policy, found.retry_count) == ("pending", RetryPolicy.EXPONENTIAL, 0)
    assert found.next_retry_at is not None
    assert (await dlq.get_statistics())["retry_policies"] == {"never": 0, "linear": 0, "exponential": 1, "immediate": 0}


async def test_a_task_that_kills_its_process_three_times_is_exhausted_and_counted(dlq, app, clock):
    moved = []
    app.hub.listen(lambda fact: moved.append(fact.event) if isinstance(fact, TaskMoved) else None)
    task = await enqueue(dlq)
    await convict(dlq, app, clock, task)
    letter = await app.store.get(task.letter_id)
    assert (letter.status, letter.why, letter.losses) == ("failed", "worker_crashed", 3)
    assert [each.task_id for each in await dlq.list_tasks(status=DeadLetterStatus.EXHAUSTED)] == ["wf_abc123"]
    stats = await dlq.get_statistics()
    assert (stats["status_breakdown"]["exhausted"], stats["lifetime_stats"]["exhausted"]) == (1, 1)
    assert (stats["lifetime_stats"]["retry_failed"], moved) == (0, ["enqueued", "exhausted"])


async def test_the_observability_manager_is_told_of_a_task_that_kills_its_process(app, clock):
    told = []

    class Manager:
        def log_info(self, message, attributes):
            told.append(message)

        log_error = log_info

    dlq = DeadLetterQueue(store=app, observability_manager=Manager())
    await convict(dlq, app, clock, await enqueue(dlq))
    assert told == ["task enqueued", "task exhausted"]


# ---------------------------------------------------------------------- alone


async def test_a_task_whose_process_died_runs_alone(app, clock):
    dlq = DeadLetterQueue(store=app, concurrency=5)
    tasks = [await enqueue(dlq, f"wf_{number}") for number in range(4)]
    clock.advance(MINUTE)
    await lose(app, clock, tasks[1])
    await lose(app, clock, tasks[2])
    running, together = set(), {}

    async def callback(task, repos):
        name = next(name for name in ("wf_0", "wf_1", "wf_2", "wf_3") if name not in together)
        running.add(name)
        held = {each.letter_id for each in await dlq.list_tasks("retrying")}
        together[name] = held
        running.discard(name)

    assert await dlq.run_cycle(callback) == 4
    alone = [held for held in together.values() if held & {tasks[1].letter_id, tasks[2].letter_id}]
    assert [len(held) for held in alone] == [1, 1]
    assert {task.status for task in await dlq.list_tasks("completed")} == {DeadLetterStatus.COMPLETED}
    assert len(await dlq.list_tasks("completed")) == 4


async def test_tasks_whose_process_died_do_not_keep_others_from_running(app, clock):
    dlq = DeadLetterQueue(store=app, concurrency=2)
    tasks = [await enqueue(dlq, f"wf_{number}") for number in range(5)]
    clock.advance(MINUTE)
    for task in tasks[:3]:
        await lose(app, clock, task)
    assert await dlq.run_cycle(Callback()) == 5
    assert len(await dlq.list_tasks("completed")) == 5


async def test_a_suspect_is_claimed_once_while_the_others_run(app, clock):
    """Each claim is another chance to die with it, although it does not run."""
    dlq = DeadLetterQueue(store=app, concurrency=1)
    task = await enqueue(dlq, "wf_suspect", metadata={"priority": "high"})
    await lose(app, clock, task)
    for number in range(12):
        await enqueue(dlq, f"wf_{number}", retry_policy="immediate")
    tokens = []

    async def callback(task, repos):
        clock.advance(0.01)
        tokens.append((await app.store.get(suspect)).token)

    suspect = task.letter_id
    assert await dlq.run_cycle(callback) == 13
    assert len(set(tokens[:12])) == 1


async def test_a_suspect_that_another_process_ran_meanwhile_waits_for_its_next_retry(app, clock):
    dlq, other = DeadLetterQueue(store=app, concurrency=1), DeadLetterQueue(store=app)
    suspect = await enqueue(dlq, "wf_suspect")
    await lose(app, clock, suspect)
    await enqueue(dlq, "wf_long", retry_policy="immediate")
    ran = []

    async def callback(task, repos):
        ran.append(task)
        await other.retry_task("wf_suspect", callback=Callback(ConnectionError("connection refused")))

    await dlq.run_cycle(callback)
    assert (len(ran), (await dlq.get_task("wf_suspect")).retry_count) == (1, 1)
