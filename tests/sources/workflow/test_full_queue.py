"""Queue full handling."""

from __future__ import annotations

import pytest
from tests.sources.workflow.samples import enqueue

from redrive.errors import QueueFull
from redrive.workflow import DeadLetterQueue


async def test_a_full_queue_refuses_loudly_and_an_exhausted_task_counts(app):
    dlq = DeadLetterQueue(max_size=2, store=app)
    await enqueue(dlq, "a")
    await enqueue(dlq, "b", max_retries=0)
    with pytest.raises(QueueFull):
        await enqueue(dlq, "c")
    with pytest.raises(ValueError, match="maximum of 2"):
        await enqueue(dlq, "c")
    assert (await dlq.get_statistics())["utilization_percent"] == 100.0


async def test_a_task_that_is_kept_may_fail_again_although_the_queue_is_full(app):
    dlq = DeadLetterQueue(max_size=1, store=app)
    await enqueue(dlq, "a")
    assert (await enqueue(dlq, "a", error="disk full")).last_error == "disk full"


async def test_archiving_exhausted_tasks_makes_room(app):
    dlq = DeadLetterQueue(max_size=1, store=app)
    await enqueue(dlq, "a", max_retries=0)
    for task in await dlq.list_tasks(status="exhausted"):
        await dlq.archive_task(task.task_id)
    assert (await enqueue(dlq, "b")).task_id == "b"
