"""Letters of a user's transaction that wait for others: the user may take long, and no worker waits for it."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from tests.sources.outbox.users import KIND

from redrive.core.decide import DELIVERED
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
