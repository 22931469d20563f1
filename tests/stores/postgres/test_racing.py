"""Those who open, declare, migrate, look and freeze at the same time."""

from __future__ import annotations

import asyncio

from tests.stores.samples import KIND, QUEUE, claim, dead, draft, letter_id, put

from redrive.core.budget import BudgetRules
from redrive.core.plan import Plan
from redrive.stores.contract import Want
from redrive.stores.postgres import PostgresStore, shared_state
from redrive.stores.postgres.server import connections

COUNTS = "LOCK TABLE redrive.outbox_tallies, redrive.outbox_deltas"
TAKE_BACK = """
    WITH taken AS (
        UPDATE redrive.outbox SET status = 'pending', lease_until = NULL, worker = NULL, token = token + 1
         WHERE status = 'in_flight' RETURNING queue, event_type)
    INSERT INTO redrive.outbox_deltas (queue, kind, status, n)
    SELECT queue, event_type, each.status, each.n
      FROM taken, (VALUES ('in_flight', -1), ('pending', 1)) AS each (status, n)
"""
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


async def test_of_many_that_open_an_empty_database_one_makes_the_schema(url, store, connection):
    for turn in range(3):
        schema = f"racing {turn}"
        await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        stores = [PostgresStore(url, schema=schema, listen=False) for _ in range(5)]
        await asyncio.gather(*(each.open() for each in stores))
        for each in stores:
            await each.close()
        await connection.execute(f'DROP SCHEMA "{schema}" CASCADE')


async def test_a_letter_that_is_taken_back_during_a_look_is_seen(store, connection):
    await put(store, draft("a"))
    await claim(store)
    async with asyncio.timeout(60), connection.transaction():
        await connection.execute(COUNTS)
        looking = asyncio.ensure_future(store.backlog([Want(QUEUE, (KIND,), 1)]))
        while not await connection.fetchval(WAITING):
            assert not looking.done()
        await connection.execute(TAKE_BACK)
    backlog = await looking
    assert backlog.runnable or backlog.in_flight


async def test_a_letter_that_moves_between_the_look_and_the_act_of_a_plan_is_skipped(store, connection):
    await dead(store, *"abc")
    await store.start_plan(Plan(id="racing", verb="replay", query="status:failed", by="ada", reason=""))
    async with asyncio.timeout(60), connection.transaction():
        await connection.execute("UPDATE redrive.outbox SET token = token + 1000000 WHERE id = $1", letter_id("b"))
        stepping = asyncio.ensure_future(store.step("racing", limit=10))
        while not await connection.fetchval(WAITING):
            assert not stepping.done()
    step = await stepping
    assert (step.acted, step.skipped) == ((letter_id("a"), letter_id("c")), 1)
    assert (step.plan.acted, step.plan.skipped, step.plan.done) == (2, 1, True)


async def test_a_process_that_freezes_inside_a_transaction_holds_up_nobody_for_long(store, url, monkeypatch):
    monkeypatch.setattr(connections, "FROZEN", 0.2)
    frozen, inside, awake = PostgresStore(url, listen=False), asyncio.Event(), asyncio.Event()
    await frozen.open()

    async def spend_and_freeze(turn):
        wait = await shared_state.spend(turn, QUEUE, BudgetRules(), 100, 1)
        inside.set()
        await awake.wait()
        return wait

    freezing = asyncio.ensure_future(frozen._calls.write(spend_and_freeze))
    async with asyncio.timeout(30):
        await inside.wait()
        await store.spend(QUEUE, BudgetRules(), firsts=100, retries=1)
        assert not freezing.done()
        awake.set()
        await freezing  # it is told that its transaction is gone, and does it again
    await frozen.close()
