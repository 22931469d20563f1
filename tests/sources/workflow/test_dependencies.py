"""Tasks that wait for other tasks."""

from __future__ import annotations

import pytest
from tests.sources.workflow.samples import Callback, enqueue, failing

from redrive.errors import DraftError, TaskNotFound


async def test_a_task_waits_until_the_other_succeeded(dlq, clock):
    await enqueue(dlq, "wf_a", retry_policy="immediate")
    b = await enqueue(dlq, "wf_b", retry_policy="immediate", after=["wf_a"])
    assert (await dlq.get_task("wf_b")).held == "waits for 1 other task"
    assert await dlq.run_cycle(Callback(ConnectionError("no"))) == 1
    clock.advance(61)
    assert await dlq.run_cycle(Callback()) == 1
    assert (await dlq.get_task("wf_a")).status == "completed"
    clock.advance(1)
    assert await dlq.run_cycle(Callback()) == 1
    assert (await dlq.get_task("wf_b")).status == "completed"
    assert b.task_id == "wf_b"


async def test_an_unknown_task_cannot_be_waited_for(dlq):
    with pytest.raises(TaskNotFound, match="wf_none"):
        await enqueue(dlq, "wf_b", after=["wf_none"])


async def test_a_cycle_is_refused(dlq):
    await enqueue(dlq, "wf_a")
    await enqueue(dlq, "wf_b", after=["wf_a"])
    await enqueue(dlq, "wf_c", after=["wf_b"])
    with pytest.raises(DraftError, match="waits for it already"):
        await enqueue(dlq, "wf_a", after=["wf_c"])


async def test_a_person_cannot_run_a_task_that_waits(dlq):
    await enqueue(dlq, "wf_a")
    await enqueue(dlq, "wf_b", after=["wf_a"])
    assert (await dlq.retry_task("wf_b", callback=Callback()))["error"] == "waits for 1 other task"


async def test_explain_names_what_it_waits_for(dlq, app):
    a = await enqueue(dlq, "wf_a")
    b = await enqueue(dlq, "wf_b", after=["wf_a"])
    told = await app.desk.explain(b.letter_id)
    assert a.letter_id in str(told)


async def test_a_task_waits_on_while_the_other_is_exhausted(dlq, clock):
    await enqueue(dlq, "wf_a", max_retries=0)
    await enqueue(dlq, "wf_b", after=["wf_a"])
    clock.advance(1e5)
    assert await dlq.run_cycle(Callback()) == 0
    assert (await dlq.get_task("wf_b")).status == "pending"


async def test_a_task_may_run_although_the_other_is_exhausted(dlq, clock):
    await enqueue(dlq, "wf_a", max_retries=1)
    await enqueue(dlq, "wf_b", after=["wf_a"], after_failure="run")
    clock.advance(1e5)
    assert await dlq.run_cycle(failing()) == 1
    assert await dlq.run_cycle(Callback()) == 1
    assert [(await dlq.get_task(name)).status for name in ("wf_a", "wf_b")] == ["exhausted", "completed"]


async def test_a_task_may_fail_with_the_other_without_a_run(dlq, clock):
    a = await enqueue(dlq, "wf_a", max_retries=1)
    await enqueue(dlq, "wf_b", after=["wf_a"], after_failure="fail")
    clock.advance(1e5)
    await dlq.run_cycle(failing())
    callback = Callback()
    assert await dlq.run_cycle(callback) == 0
    b = await dlq.get_task("wf_b")
    assert (b.status, b.retry_count, callback.calls) == ("exhausted", 0, [])
    assert a.letter_id in b.last_error
    lifetime = (await dlq.get_statistics())["lifetime_stats"]
    assert (lifetime["exhausted"], lifetime["retry_failed"]) == (2, 1)


async def test_letters_of_other_queues_that_wait_for_a_dead_task_are_left_to_their_own_workers(dlq, app):
    a = await enqueue(dlq, "wf_a", max_retries=0)
    others = [await app.enqueue("report", {}, after=[a.letter_id], after_failure=word) for word in ("run", "fail")]
    await dlq.run_cycle(Callback())
    letters = [await app.store.get(each.id) for each in others]
    assert [(letter.status, letter.waits_for) for letter in letters] == [("pending", 1), ("pending", 1)]


async def test_what_a_task_in_the_queue_waits_for_cannot_change(dlq):
    await enqueue(dlq, "wf_a")
    await enqueue(dlq, "wf_b")
    with pytest.raises(DraftError, match="archive it first"):
        await enqueue(dlq, "wf_b", after=["wf_a"])


async def test_a_slip_in_after_failure_is_refused(dlq):
    await enqueue(dlq, "wf_a")
    with pytest.raises(DraftError, match="'wait', 'run' or 'fail'"):
        await enqueue(dlq, "wf_b", after=["wf_a"], after_failure="stop")
    with pytest.raises(DraftError, match="without after"):
        await enqueue(dlq, "wf_b", after_failure="run")
