"""
A letter comes in while retention removes the one that was kept under its key.

The moment in between is held open: a trigger of the test's own stops whoever inserts right after its insert, and
lets go once the other letter is gone. Whatever the order, the letter is kept or named as a duplicate; never neither.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.stores.samples import draft

from redrive.stores.contract import Retention

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GATE = 4711
HELD = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {GATE} AND NOT granted"  # noqa: S608 - our own number
AT_ONCE = Retention(delivered=0.0, archived=0.0, failed=0.0)


@pytest.fixture
async def gate(store, connection) -> AsyncIterator[None]:
    """Whoever inserts letters waits after its insert, until the gate is opened."""
    await store.put([draft("old", kind="pay", idempotency_key="k")])
    await connection.execute(f"""
        UPDATE redrive.outbox SET status = 'delivered', updated_at = 'epoch';
        UPDATE redrive.outbox_deltas SET status = 'delivered' WHERE status = 'pending';
        CREATE FUNCTION redrive.wait_at_gate() RETURNS trigger LANGUAGE plpgsql
            AS 'BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NULL; END';
        CREATE TRIGGER gate AFTER INSERT ON redrive.outbox FOR EACH STATEMENT EXECUTE FUNCTION redrive.wait_at_gate();
        SELECT pg_advisory_lock({GATE})
    """)  # noqa: S608 - our own number
    yield
    await connection.execute("DROP TRIGGER gate ON redrive.outbox; DROP FUNCTION redrive.wait_at_gate")


async def _between(store, connection, inserting: asyncio.Task) -> None:
    """Remove the old letter when the insert has seen it, then let the insert go on."""
    async with asyncio.timeout(30):
        while not await connection.fetchval(HELD):
            assert not inserting.done()
            await asyncio.sleep(0.005)
    assert await store.retain(AT_ONCE) == 1
    await connection.execute(f"SELECT pg_advisory_unlock({GATE})")


async def test_a_put_whose_twin_is_removed_meanwhile_is_kept(store, connection, gate):
    new, last = draft("new", kind="pay", idempotency_key="k"), draft("last")
    putting = asyncio.create_task(store.put([draft("first"), new, last]))
    await _between(store, connection, putting)
    assert [receipt.duplicate for receipt in await putting] == [False] * 3
    assert await store.get(new.id) is not None
    ids = [str(row[0]) for row in await connection.fetch("SELECT id FROM redrive.outbox ORDER BY seq")]
    assert ids[1:] == [new.id, last.id]  # in the order in which they were given


async def test_a_letter_of_the_outbox_whose_twin_is_removed_meanwhile_is_kept(store, connection, gate, url):
    import asyncpg  # noqa: PLC0415 - only where there is a driver

    from redrive import Redrive  # noqa: PLC0415

    app, own = Redrive(store=store), await asyncpg.connect(url)

    async def enqueue():
        async with own.transaction():
            return await app.outbox(own).enqueue("pay", {}, queue="work", idempotency_key="k")

    enqueuing = asyncio.create_task(enqueue())
    await _between(store, connection, enqueuing)
    receipt = await enqueuing
    assert not receipt.duplicate
    assert await store.get(receipt.id) is not None
    await own.close()


async def test_a_letter_in_sql_whose_twin_is_removed_meanwhile_is_kept(store, connection, gate, url):
    import asyncpg  # noqa: PLC0415 - only where there is a driver

    own = await asyncpg.connect(url)
    enqueue = "SELECT redrive.outbox_enqueue('pay', '{}', 'work', p_idempotency_key => 'k')"
    enqueuing = asyncio.create_task(own.fetchval(enqueue))
    await _between(store, connection, enqueuing)
    kept = await enqueuing
    assert kept is not None
    assert await store.get(str(kept)) is not None
    await own.close()
