"""Names too long for an index are kept beside; whoever reads a row can always read it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import asyncpg
import pytest
from tests.stores.samples import (
    LEASE,
    QUEUE,
    WANT,
    WORKER,
    act,
    dead,
    draft,
    failure,
    find_all,
    get,
    give_up,
    letter_id,
    put,
    settle_all,
)

from redrive.core.query import parse
from redrive.stores.contract import Retention, Want
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.server import long_names
from redrive.stores.postgres.server.long_names import Names
from redrive.stores.postgres.texts import name
from redrive.stores.postgres.user_transactions import columns_of, statement

LONG = "long " * 200
LOOKALIKE = "\x1aL" + "0" * 64


async def kept_names(connection, schema: str = "redrive") -> list[str]:
    return [row[0] for row in await connection.fetch(f'SELECT name FROM "{schema}".outbox_names ORDER BY name')]  # noqa: S608 - our own name


@asynccontextmanager
async def opened(url: str, schema: str = "redrive"):
    """Open a store that has met no names yet."""
    store = PostgresStore(url, schema=schema, listen=False)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_a_long_name_that_nobody_kept_reads_as_its_beginning_and_disturbs_nobody(store, url, connection):
    await put(store, draft("a", key=LONG, tenant=LONG), draft("b"))
    await connection.execute("DELETE FROM redrive.outbox_names")
    async with opened(url) as other:
        assert (await get(other, "a")).key == name(LONG)
        assert len(await find_all(other)) == 2
        claims = await other.claim([WANT], lease=LEASE, worker=WORKER)
        assert {each.letter.id: each.letter.tenant for each in claims} == {
            letter_id("a"): name(LONG),
            letter_id("b"): None,
        }
        assert all(await other.settle([(each, give_up()) for each in claims]))
        await act(other, "replay", "a", "b")


async def test_a_row_in_which_the_mark_stands_twice_for_itself_is_read_as_before(store, connection):
    await put(store, draft("a"))
    await connection.execute("UPDATE redrive.outbox SET key = $1, odd = true", "\x1a\x1a" + LOOKALIKE[1:])
    assert (await get(store, "a")).key == LOOKALIKE


async def test_a_digest_of_somebody_elses_making_is_only_text(store, connection):
    """Such rows come from SQL: the queue's name is read by every worker that sweeps."""
    await connection.execute("SELECT redrive.outbox_enqueue($1, '{}'::jsonb)", LOOKALIKE)
    assert LOOKALIKE in {tally.kind for tally in await store.tallies()}
    assert [letter.kind for letter in await find_all(store)] == [LOOKALIKE]


async def test_a_name_of_one_schema_is_not_written_into_another(store, url, connection):
    async with opened(url, "second") as second:
        await put(store, draft("a", key=LONG))
        await second.put([draft("b")])
        await second.find(parse(""))
        assert (await kept_names(connection), await kept_names(connection, "second")) == ([LONG], [])
    await connection.execute("DROP SCHEMA second CASCADE")


async def test_a_query_writes_no_names(store, connection):
    await store.find(parse(f'key:"{LONG}" error:"{LONG}" -release:"{LONG}" queue:"{LONG}"'))
    await store.groups(parse(f'kind:"{LONG}"'))
    await store.claim([Want(QUEUE, (LONG,), 1)], lease=LEASE, worker=WORKER)
    assert await kept_names(connection) == []


async def test_more_names_are_read_at_once_than_a_store_remembers(store, url):
    keys = [f"{n} {LONG}" for n in range(20)]
    await put(store, *(draft(key, key=key) for key in keys))
    async with opened(url) as other:
        other._calls._names = Names(most=3_000)
        assert [letter.key for letter in reversed(await find_all(other))] == keys
        claims = await other.claim([WANT], lease=LEASE, worker=WORKER)
        assert sorted(each.letter.key for each in claims) == sorted(keys)


def test_a_store_remembers_only_so_many_names_and_those_used_last():
    names = Names(most=1_000)
    for n in range(100):
        names.remember({f"L{n}": "x" * 200})
        names.known(["L0"])
    assert names.known(["L0", "L1", "L98", "L99"]).keys() == {"L0", "L98", "L99"}
    assert sum(len(whole) for whole in names._whole.values()) == names._size == 1_000


async def test_a_name_is_written_once_while_it_is_remembered(store, connection):
    await put(store, draft("a", key=LONG))
    await connection.execute("DELETE FROM redrive.outbox_names")
    await put(store, draft("b", key=LONG))
    assert await kept_names(connection) == []


# ---------------------------------------------------------------------- purged is gone

SECRET = b"4111-1111-1111-1111"


async def tables_with(connection, secret: bytes) -> list[str]:
    """Return the tables that hold *secret* anywhere, as text or as bytes."""
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'redrive'")
    looks = "SELECT count(*) FROM redrive.{0} AS t WHERE strpos(t::text, $1) > 0 OR strpos(t::text, $2) > 0"
    return [row[0] for row in tables if await connection.fetchval(looks.format(row[0]), secret.hex(), secret.decode())]


async def test_of_a_purged_letter_no_table_has_the_payload(store, connection):
    await dead(store, draft("a", payload=SECRET, key=SECRET.decode()), what=failure(SECRET.decode(), fingerprint="f"))
    assert await tables_with(connection, SECRET) == ["outbox"]
    await store.edit(letter_id("a"), SECRET + b"2", "text/plain", version=1, by="ada", reason="")
    await act(store, "replay", "a")
    await settle_all(store, give_up())
    await act(store, "archive", "a")
    await act(store, "purge", "a")
    assert await tables_with(connection, SECRET) == []


async def test_answers_of_old_calls_are_removed_where_no_worker_runs(store, connection):
    await dead(store, "a", "b")
    await act(store, "replay", "a")
    await connection.execute("UPDATE redrive.outbox_calls SET at = at - interval '2 hours'")
    await act(store, "replay", "b")
    assert await connection.fetchval("SELECT count(*) FROM redrive.outbox_calls") == 1


# ---------------------------------------------------------------------- names whose letters are gone

KEY = "k" * 2_000
LATER = "UPDATE redrive.outbox_clock SET lease_us = lease_us + 3 * 3600 * 1000000::bigint"


async def purge(store, *names: str) -> None:
    await act(store, "cancel", *names)
    await act(store, "purge", *names)


async def retain_later(store, connection) -> None:
    """Retain as a worker does three hours later."""
    await connection.execute(LATER)
    await store.retain(Retention())


@pytest.mark.parametrize("field", ["key", "idempotency_key", "origin", "handler", "tenant", "policy"])
async def test_the_long_name_of_a_letter_that_was_purged_is_removed(store, connection, field):
    await put(store, draft("a", **{field: KEY}))
    assert await kept_names(connection) == [KEY]
    await purge(store, "a")
    await store.retain(Retention())
    assert await kept_names(connection) == [KEY]  # another process may have seen it, and write it no more for an hour
    await retain_later(store, connection)
    assert await kept_names(connection) == []


async def test_a_name_that_another_letter_has_stays_and_goes_with_that_one(store, connection):
    await put(store, draft("a", key=KEY), draft("b", tenant=KEY), draft("c", key=LONG))
    await purge(store, "a")
    await retain_later(store, connection)
    assert await kept_names(connection) == sorted([KEY, LONG])
    assert (await get(store, "b")).tenant == KEY
    await purge(store, "b")
    await retain_later(store, connection)
    assert await kept_names(connection) == [LONG]


async def test_a_name_of_a_queue_stays_although_its_letters_are_gone(store, connection):
    await put(store, draft("a", queue=KEY, key=KEY))
    await purge(store, "a")
    await retain_later(store, connection)
    assert KEY in {tally.queue for tally in await store.tallies()}


async def test_the_name_of_a_handled_key_stays_until_the_key_is_forgotten(store, url, connection):
    await put(store, draft("a", idempotency_key=KEY))
    await store.handled("h", KEY)
    await purge(store, "a")
    await retain_later(store, connection)
    assert await kept_names(connection) == [KEY]
    assert not await store.handled("h", KEY)
    await store.retain(Retention(handled=0.0))
    await retain_later(store, connection)
    assert await kept_names(connection) == []


async def test_a_name_in_a_users_open_transaction_stays(store, url, connection):
    await put(store, draft("a", key=KEY))
    await purge(store, "a")
    user = await asyncpg.connect(url)
    async with user.transaction():
        await user.fetch(statement("redrive", "accept"), *columns_of(draft("b", key=KEY)), False)
        await retain_later(store, connection)
        assert await kept_names(connection) == [KEY]
    await retain_later(store, connection)
    async with opened(url) as other:
        assert (await get(other, "b")).key == KEY
    await user.close()


async def test_two_open_transactions_may_use_one_long_name(store, url):
    await put(store, draft("a", key=KEY))
    users = [await asyncpg.connect(url) for _ in range(2)]
    begun = [user.transaction() for user in users]
    async with asyncio.timeout(30):
        for name_, user, transaction in zip("bc", users, begun, strict=True):
            await transaction.start()
            await user.fetch(statement("redrive", "accept"), *columns_of(draft(name_, key=KEY)), False)
    for user, transaction in zip(users, begun, strict=True):
        await transaction.commit()
        await user.close()


async def test_a_name_is_written_again_after_an_hour_because_retention_may_have_removed_it(
    store, monkeypatch, connection
):
    await put(store, draft("a", key=KEY))
    await purge(store, "a")
    await retain_later(store, connection)
    monkeypatch.setattr(long_names, "SURE", 0.0)
    await put(store, draft("b", key=KEY))
    assert await kept_names(connection) == [KEY]


async def test_a_name_that_a_process_made_sure_of_lately_stays(store, connection):
    await put(store, draft("a", key=KEY))
    await purge(store, "a")
    await connection.execute(LATER)
    await connection.execute("UPDATE redrive.outbox_names SET kept_us = (SELECT lease_us FROM redrive.outbox_clock)")
    await store.retain(Retention())
    assert await kept_names(connection) == [KEY]
