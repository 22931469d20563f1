"""Letters that are put by many at once, twice, or to wait for what is gone."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from tests.stores.samples import KIND, QUEUE, act, after, draft, failure, get, letter_id, put, settle_all

from redrive.core.decide import DELIVERED
from redrive.core.query import parse
from redrive.errors import QueueFull
from redrive.stores.contract import QueueSpec, Receipt, Retention
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.user_transactions import columns_of, statement


async def test_a_kept_key_is_a_duplicate_although_what_its_letter_waited_for_is_gone(store):
    await put(store, "a", after("b", "a", idempotency_key="k"))
    await settle_all(store, DELIVERED)
    await store.retain(Retention(delivered=0.0))
    assert await store.get(letter_id("a")) is None
    again = await store.put([after("c", "a", idempotency_key="k"), after("b", "a")])
    assert again == [Receipt(letter_id("b"), duplicate=True)] * 2


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_many_who_enqueue_at_once_never_overfill_a_queue(store, url, connection, isolation):
    await connection.execute(f"ALTER DATABASE postgres SET default_transaction_isolation = '{isolation}'")
    try:
        others = [PostgresStore(url, listen=False) for _ in range(3)]
        for other in others:
            await other.open()
        for turn in range(10):
            await store.declare([QueueSpec(name=f"q{turn}", max_size=5)])
            puts = [
                each.put([draft(f"{turn} {place} {n}", queue=f"q{turn}")])
                for place, each in enumerate((store, *others))
                for n in range(5)
            ]
            told = await asyncio.gather(*puts, return_exceptions=True)
            assert sum(isinstance(each, QueueFull) for each in told) == 15
            assert await store.count(parse(f"queue:q{turn}")) == 5
        for other in others:
            await other.close()
    finally:
        await connection.execute("ALTER DATABASE postgres RESET default_transaction_isolation")


async def test_a_duplicate_in_sql_needs_no_room(store, connection):
    await store.declare([QueueSpec(name=QUEUE, max_size=1)])
    enqueue = "SELECT redrive.outbox_enqueue('a', '{}', 'work', p_idempotency_key => 'k')"
    assert await connection.fetchval(enqueue) == await connection.fetchval(enqueue)


@pytest.mark.parametrize("delay", ["infinity", "-infinity", "9000 years", "-9000 years"])
async def test_a_delay_beyond_the_calendar_is_refused_in_sql(store, connection, delay):
    with pytest.raises(asyncpg.PostgresError, match="it would be due beyond the years 1 to 9999"):
        await connection.execute(f"SELECT redrive.outbox_enqueue('a', '{{}}', p_delay => '{delay}')")


@pytest.mark.parametrize("due", ["infinity", "-infinity", "20000-01-01", "4000-01-01 BC"])
async def test_a_letter_that_is_due_beyond_the_calendar_is_shown_and_stops_nobody(store, connection, due):
    await put(store, "a", "b")
    await connection.execute(
        "UPDATE redrive.outbox SET due_at = $1::text::timestamptz WHERE id = $2", due, letter_id("a")
    )
    page = await store.find(parse("status:pending"))
    assert {letter.due_at.year for letter in page.letters if letter.id == letter_id("a")} <= {1, 9999}
    assert len(page.letters) == 2
    assert (await get(store, "a")).due_at.year in (1, 9999)
    plan = await store.count(parse("due:<30d"))
    assert plan >= 1
    assert len(await act(store, "cancel", "a")) == 1


async def test_waiting_for_thousands_is_quick_also_after_the_table_was_emptied(store, connection):
    """The planner then takes the table for empty, and would go through it once for each letter that is waited for."""
    await store.put([draft(f"gone{n}") for n in range(12_000)])
    await connection.execute("DELETE FROM redrive.outbox WHERE seq < (SELECT max(seq) FROM redrive.outbox)")
    counts = (
        "INSERT INTO redrive.outbox_deltas (queue, kind, status, n) "
        "VALUES ($1, $2, 'pending', -$3::bigint), ($1, $2, 'purged', $3)"
    )
    await connection.execute(counts, QUEUE, KIND, 11_999)
    await connection.execute("VACUUM ANALYZE redrive.outbox")
    many = [f"a{n}" for n in range(24_000)]
    await store.put([draft(name) for name in many])
    async with asyncio.timeout(20):  # forty seconds if it grew with the square
        await put(store, draft("b", after=tuple(map(letter_id, many))))
    assert (await get(store, "b")).waits_for == 24_000


READ = "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables WHERE relid = 'redrive.outbox'::regclass"


async def test_collecting_many_reads_few_rows_also_after_the_table_was_emptied(store, connection):
    """The planner then takes the table for empty, and would go through it once for each dead letter."""
    await connection.execute("VACUUM ANALYZE redrive.outbox")  # the tests before have left it empty
    drafts = [draft(f"a{n}", failure=failure(fingerprint=f"f{n}")) for n in range(1_000)]
    columns = map(list, zip(*map(columns_of, drafts), strict=True))
    async with connection.transaction():
        await connection.fetch(statement("redrive", "accept_many"), *columns, False)
        assert await connection.fetchval(READ) < 50 * len(drafts)  # half a million if it grew with the square
    assert await store.count(parse("status:failed")) == 1_000
