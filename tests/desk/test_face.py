from __future__ import annotations

import pytest

from redrive.core import facts
from redrive.core.letter import Status
from redrive.desk.desk import Desk
from redrive.errors import MoveRefused


@pytest.fixture
def told():
    return []


@pytest.fixture
def desk(store, told):
    return Desk(store, by="ana@ops", announce=told.append)


async def test_every_act_is_announced_with_author_and_reason(desk, mill, told):
    failed, other = await mill.failed(), await mill.failed()
    pending = await mill.pending("mail.sent")

    await desk.edit(failed, b'{"order":18}', version=1, reason="wrong")
    await desk.replay(failed, reason="fixed")
    await desk.archive(other)
    await desk.cancel(pending)
    await desk.restore(other)
    await desk.purge(pending)
    await desk.pause("default", reason="bank")
    await desk.resume("default")

    assert [type(fact) for fact in told] == [
        facts.Edited, facts.Replayed, facts.Archived, facts.Archived,
        facts.Restored, facts.Purged, facts.QueuePaused, facts.QueueResumed,
    ]  # fmt: skip
    assert {fact.by for fact in told} == {"ana@ops"}
    assert (told[0].version, told[0].reason, told[1].count, told[1].reason) == (2, "wrong", 1, "fixed")


async def test_what_was_refused_or_came_to_nothing_is_not_announced(desk, mill, told):
    pending = await mill.pending()

    with pytest.raises(MoveRefused):
        await desk.replay(pending)
    await desk.replay(query="kind:none")

    assert told == []


async def test_a_resumed_plan_announces_only_what_it_did_itself(desk, store, mill, told):
    for _ in range(5):
        await mill.failed()
    plan = await desk.start("replay", "status:failed", reason="fixed", paused=False)
    await store.step(plan.id, limit=2)

    await desk.carry_out(plan.id)
    await desk.carry_out(plan.id)

    assert [(fact.count, fact.plan) for fact in told] == [(3, plan.id)]


async def test_the_desk_looks_without_changing_anything(desk, mill, told):
    failed = await mill.failed()

    assert (await desk.show(failed)).status is Status.FAILED
    assert [letter.id for letter in (await desk.ls("status:failed")).letters] == [failed]
    assert [group.count for group in await desk.groups()] == [1]
    assert (await desk.stats()).balanced
    assert (await desk.explain(failed)).why == "exhausted"
    assert (await desk.preview("replay", "status:failed")).count == 1
    assert [queue.name for queue in await desk.queues()] == ["default"]
    assert await desk.audit() == []
    assert told == []
