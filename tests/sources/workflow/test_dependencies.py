"""Tasks that wait for other tasks."""

from __future__ import annotations

import pytest
from tests.sources.workflow.samples import Callback, enqueue

from redrive.errors import DraftError, TaskNotFound


async def test_a_task_waits_until_the_other_succeeded(dlq, clock):
    await enqueue(dlq, "wf_a", retry_policy="immediate")
    b = await enqueue(dlq, "wf_b", retry_policy="immediate", after=["wf_a"])
    assert (await dlq.get_task("wf_b")).held == "waits for 1 other tasks"
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
    assert (await dlq.retry_task("wf_b", callback=Callback()))["error"] == "waits for 1 other tasks"


async def test_explain_names_what_it_waits_for(dlq, app):
    a = await enqueue(dlq, "wf_a")
    b = await enqueue(dlq, "wf_b", after=["wf_a"])
    told = await app.desk.explain(b.letter_id)
    assert a.letter_id in str(told)
