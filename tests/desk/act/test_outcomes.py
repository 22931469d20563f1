"""How the letters of a plan did: whoever waits for them is told when they have come to rest."""

from __future__ import annotations

import pytest
from tests.desk.conftest import failure

from redrive.core.letter import Status
from redrive.core.moves import Move
from redrive.core.query import parse
from redrive.desk.act.acts import act
from redrive.desk.act.outcome import PlanOutcome, outcome
from redrive.errors import MoveRefused, PlanNotFound
from redrive.stores.contract import Want

DELIVERED = Move(Status.DELIVERED, "succeeded")
DEAD = Move(Status.FAILED, "exhausted", failure=failure())
LATER = Move(Status.PENDING, "backing off", delay=3_600, failure=failure())


@pytest.fixture
async def canary(store, mill) -> str:
    """The plan that replayed three of five dead letters."""
    for _ in range(5):
        await mill.failed()
    return (await act(store, "replay", query="status:failed", by="ana", limit=3)).plan


class Worker:
    """Settles one letter in each pause of whoever waits, and remembers the pauses."""

    def __init__(self, store, *moves: Move) -> None:
        self.store, self.moves, self.pauses = store, list(moves), []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if self.moves:
            [claim] = await self.store.claim([Want("default", ("order.created",), 1)], lease=60, worker="w1")
            await self.store.settle([(claim, self.moves.pop(0))])


async def test_it_waits_until_each_letter_was_delivered_and_no_longer(store, canary):
    worker = Worker(store, DELIVERED, DELIVERED, DELIVERED)

    seen = await outcome(store, canary, wait=60, sleep=worker)

    assert seen == PlanOutcome(plan=canary, delivered=3, failed=0, waiting=0, gone=0)
    assert seen.healthy
    assert len(worker.pauses) == 3


async def test_letters_that_failed_again_are_told_and_the_others_still_waited_for(store, canary):
    worker = Worker(store, DEAD, DELIVERED, DEAD)

    seen = await outcome(store, canary, wait=60, sleep=worker)

    assert (seen.delivered, seen.failed, seen.waiting) == (1, 2, 0)
    assert not seen.healthy


async def test_it_waits_no_longer_than_it_was_told(store, canary):
    worker = Worker(store, DELIVERED, LATER)

    seen = await outcome(store, canary, wait=9.75, sleep=worker)

    assert sum(worker.pauses) == 9.75
    assert (seen.delivered, seen.waiting) == (1, 2)
    assert not seen.healthy


async def test_without_waiting_it_says_how_they_stand(store, canary):
    seen = await outcome(store, canary, wait=0)

    assert (seen.delivered, seen.waiting) == (0, 3)


async def test_letters_that_somebody_took_out_of_the_plan_are_told_and_not_waited_for(store, canary):
    taken = (await store.find(parse(f"plan:{canary}"))).letters[0].id
    await store.act("cancel", [taken], by="bob", reason="not this one")

    seen = await outcome(store, canary, wait=60, sleep=Worker(store, DELIVERED, DELIVERED))

    assert seen == PlanOutcome(plan=canary, delivered=2, failed=0, waiting=0, gone=1)


async def test_a_plan_that_replays_nothing_has_no_outcome(store, mill):
    await mill.failed()
    done = await act(store, "archive", query="status:failed", by="ana")

    with pytest.raises(MoveRefused, match=f"made to archive.*redrive ls -q plan:{done.plan}"):
        await outcome(store, done.plan, wait=60)


async def test_an_unknown_plan_is_refused(store):
    with pytest.raises(PlanNotFound):
        await outcome(store, "nope", wait=60)
