"""Letters of a user's transaction that wait for others: the user may take long, and no worker waits for it."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from tests.sources.outbox.users import KIND
from tests.stores.held_up import held_up_by
from tests.stores.samples import OPERATOR

from redrive.core.decide import DELIVERED
from redrive.errors import MoveRefused
from redrive.stores.contract import Want, WorkerBeat

WANTS = [Want("default", (KIND,), 10)]
BEAT = WorkerBeat(name="w", kinds=(KIND,), queues=("default",), in_flight=1)


@pytest.fixture
async def user(url, connection):
    opened = await asyncpg.connect(url)
    yield opened
    await opened.close()


async def claimed(app):
    [claim] = await app.store.claim(WANTS, lease=60, worker="w")
    return claim


async def test_no_worker_waits_for_an_open_transaction_whose_letter_waits_for_its_own(app, user):
    first = await app.enqueue(KIND, "17")
    claim = await claimed(app)
    async with user.transaction(), asyncio.timeout(60):
        await app.outbox(user).enqueue(KIND, "18", after=[first.id])
        assert await app.store.extend(BEAT, [claim], lease=60) == []
        assert await app.store.settle([(claim, DELIVERED)]) == (True,)


@pytest.mark.parametrize("delivered", ["before the commit", "after the commit"])
async def test_a_letter_runs_after_the_one_it_waits_for_whoever_is_first(app, user, delivered):
    first = await app.enqueue(KIND, "17")
    claim = await claimed(app)
    async with user.transaction():
        second = await app.outbox(user).enqueue(KIND, "18", after=[first.id])
        if delivered == "before the commit":
            await app.store.settle([(claim, DELIVERED)])
    backlog = await app.store.backlog(WANTS)
    if delivered == "after the commit":
        assert not backlog.runnable
        await app.store.settle([(claim, DELIVERED)])
    assert (await app.store.backlog(WANTS)).runnable
    assert (await claimed(app)).letter.id == second.id


async def test_making_sure_waits_for_a_delivery_that_is_under_way(app, url, user):
    first = await app.enqueue(KIND, "17")
    claim = await claimed(app)
    courier = await asyncpg.connect(url)
    async with courier.transaction():
        async with user.transaction():
            await app.outbox(user).enqueue(KIND, "18", after=[first.id])
            deliver = "SELECT redrive.outbox_deliver($1, $2, 1, clock_timestamp())"
            await courier.execute(deliver, [claim.ref], [claim.letter.token])
        looking = asyncio.ensure_future(app.store.backlog(WANTS))
        while not await courier.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            assert not looking.done()
    await courier.close()
    assert (await looking).runnable


async def removed(app, letter_id: str) -> None:
    for verb in ("cancel", "purge"):
        await app.store.act(verb, [letter_id], **OPERATOR)


async def test_a_letter_never_runs_when_the_one_it_waits_for_was_cancelled_and_its_purge_is_refused(app, user):
    pay = await app.enqueue(KIND, "17")
    await app.enqueue(KIND, "19", after=[pay.id])
    async with user.transaction():
        await app.outbox(user).enqueue(KIND, "18", after=[pay.id])
    with pytest.raises(MoveRefused, match="waits for it"):
        await removed(app, pay.id)
    assert not (await app.store.backlog(WANTS)).runnable
    assert await app.store.claim(WANTS, lease=60, worker="w") == []


async def test_a_letter_never_runs_when_the_one_it_waits_for_is_purged_while_its_transaction_is_open(
    app, user, connection
):
    pay = await app.enqueue(KIND, "17")
    async with user.transaction():
        await app.outbox(user).enqueue(KIND, "18", after=[pay.id])
        purging = asyncio.ensure_future(removed(app, pay.id))
        await held_up_by(user, purging)
    await purging
    assert await app.store.get(pay.id) is None
    assert not (await app.store.backlog(WANTS)).runnable
    assert await app.store.claim(WANTS, lease=60, worker="w") == []


async def test_a_letter_runs_although_what_was_delivered_is_removed_before_anybody_makes_sure(app, user, connection):
    pay = await app.enqueue(KIND, "17")
    claim = await claimed(app)
    async with user.transaction():
        ship = await app.outbox(user).enqueue(KIND, "18", after=[pay.id])
        await app.store.settle([(claim, DELIVERED)])
        removing = "SELECT redrive.outbox_retain(0, 0, 0, 100, NULL)"
        await connection.execute(removing)
        assert await app.store.get(pay.id) is not None, "removed while somebody is about to wait for it"
    await connection.execute(removing)
    assert await app.store.get(pay.id) is None
    assert (await claimed(app)).letter.id == ship.id


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read", "serializable"])
async def test_a_letter_may_wait_for_one_that_a_worker_took_since_the_transaction_began(app, user, isolation):
    pay = await app.enqueue(KIND, "17")
    async with user.transaction(isolation=isolation):
        await user.fetch("SELECT 1 FROM redrive.outbox")
        claim = await claimed(app)
        ship = await app.outbox(user).enqueue(KIND, "18", after=[pay.id])
    await app.store.settle([(claim, DELIVERED)])
    assert (await app.store.backlog(WANTS)).runnable
    assert (await claimed(app)).letter.id == ship.id


async def test_workers_claim_what_an_open_transaction_waits_for(app, user):
    pay = await app.enqueue(KIND, "17")
    async with user.transaction():
        await app.outbox(user).enqueue(KIND, "18", after=[pay.id])
        assert (await claimed(app)).letter.id == pay.id


async def test_a_kept_key_is_a_duplicate_although_what_its_letter_waited_for_is_gone(app, user, connection):
    pay = await app.enqueue(KIND, "17")
    async with user.transaction():
        ship = await app.outbox(user).enqueue(KIND, "18", after=[pay.id], idempotency_key="k")
    await app.store.settle([(await claimed(app), DELIVERED)])
    await connection.execute("SELECT redrive.outbox_retain(0, 0, 0, 100, NULL)")
    assert await app.store.get(pay.id) is None
    async with user.transaction():
        again = await app.outbox(user).enqueue(KIND, "18", after=[pay.id], idempotency_key="k")
    assert (again.id, again.duplicate) == (ship.id, True)


async def test_who_waits_for_a_duplicate_of_the_same_call_waits_for_what_is_kept(app, user):
    first = await app.enqueue(KIND, "17", idempotency_key="k")
    again = app.draft(KIND, "17", idempotency_key="k")
    drafts = [again, app.draft(KIND, "18", after=[again.id]), app.draft(KIND, "19", after=[first.id])]
    async with user.transaction():
        kept, *others = await app.outbox(user).enqueue_many(drafts)
    assert (kept.id, kept.duplicate) == (first.id, True)
    for other in others:
        letter = await app.desk.show(other.id)
        assert (letter.after, letter.waits_for) == ((first.id,), 1)
    await app.store.settle([(await claimed(app), DELIVERED)])
    assert [(await app.desk.show(other.id)).waits_for for other in others] == [0, 0]
