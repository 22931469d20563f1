"""What people see and do who work in SQL."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from tests.stores.samples import (
    DELIVERED,
    act,
    claim,
    dead,
    draft,
    failure,
    find_all,
    get,
    give_up,
    letter_id,
    names,
    put,
    retry,
    settle_all,
)

from redrive.core.letter import BYTES
from redrive.stores.contract import QueueSpec

_DIFFERENT = {
    "id", "seq", "token", "payload", "idempotency_key", "due_at", "cycle_at", "updated_at", "failure_history",
}  # fmt: skip


async def test_sql_and_python_leave_the_same_row_behind_when_they_replay(store, connection):
    await put(store, *(draft(name, generation=1, idempotency_key=name) for name in ("sql", "python")))
    await settle_all(store, retry(what=failure("first", release="1.0")))
    await settle_all(store, give_up(failure("last \0 word")))
    told = ("ana@ops", "fixed")
    await connection.execute("SELECT redrive.outbox_replay($1, 7, $2, $3)", letter_id("sql"), *told)
    await act(store, "replay", "python", by=told[0], reason=told[1], generation=7)

    by_sql, by_python = [
        dict(await connection.fetchrow("SELECT * FROM redrive.outbox WHERE id = $1", letter_id(name)))
        for name in ("sql", "python")
    ]
    letters = [await get(store, name) for name in ("sql", "python")]
    assert {name for name in by_sql if by_sql[name] != by_python[name]} <= _DIFFERENT
    cycles = [letter.failure_history[0] for letter in letters]
    assert cycles[0].tries[1].error == "last \0 word"
    alike = [(c.attempts, c.last_error, c.why, c.replayed_by, c.reason, c.release, c.generation) for c in cycles]
    assert alike[0] == alike[1]
    assert [letter.generation for letter in letters] == [7, 7]
    assert [entry.target for entry in await store.audit(limit=2)] == [letter_id("python"), letter_id("sql")]


async def test_instants_inside_a_history_cast_to_timestamptz(store, connection):
    await put(store, "a")
    await settle_all(store, give_up(failure("it failed")))
    failed_at = (await get(store, "a")).failed_at
    await act(store, "replay", "a")
    sql = (
        "SELECT (c ->> 'failed_at')::timestamptz, (c ->> 'first_failed_at')::timestamptz, "
        "(c -> 'tries' -> 0 ->> 'at')::timestamptz, (c ->> 'replayed_at')::timestamptz >= updated_at "
        "FROM redrive.outbox, jsonb_array_elements(failure_history) AS c"
    )
    assert tuple(await connection.fetchrow(sql)) == (failed_at, failed_at, failed_at, True)


async def test_a_letter_that_is_not_failed_is_not_replayed(store, connection):
    await put(store, "a")
    with pytest.raises(asyncpg.PostgresError, match="it is pending, and only a letter that is failed"):
        await connection.execute("SELECT redrive.outbox_replay($1, 1, 'sql-direct')", letter_id("a"))
    with pytest.raises(asyncpg.PostgresError, match="no letter has the id"):
        await connection.execute("SELECT redrive.outbox_replay($1, 1, 'sql-direct')", letter_id("nobody"))


async def test_the_dead_letters_are_a_filter_on_the_outbox(store, connection):
    await dead(store, "a", "b")
    await act(store, "archive", "b")
    sql = "SELECT id::text FROM redrive.outbox WHERE status = 'failed' AND deleted_at IS NULL"
    assert [row["id"] for row in await connection.fetch(sql)] == [letter_id("a")]
    sql = "SELECT deleted_at IS NOT NULL FROM redrive.outbox WHERE status = 'archived'"
    assert await connection.fetchval(sql)


_ENQUEUE = "SELECT redrive.outbox_enqueue('order.created', '{\"order\": 17}', p_queue => 'work', p_key => $1)"


async def test_what_is_enqueued_in_a_transaction_lives_and_dies_with_it(store, connection):
    for is_kept in (False, True):
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(_ENQUEUE, None)
        assert await claim(store) == []
        await (transaction.commit() if is_kept else transaction.rollback())
    [claimed] = await claim(store)
    assert claimed.letter.payload == b'{"order": 17}'
    assert await store.settle([(claimed, DELIVERED)]) == (True,)


async def test_an_idempotency_key_gives_the_id_that_is_kept(store, connection):
    sql = "SELECT redrive.outbox_enqueue('mail', '{}', p_idempotency_key => 'k1')::text"
    first, second = await connection.fetchval(sql), await connection.fetchval(sql)
    assert first == second
    assert len(await find_all(store)) == 1


async def test_a_full_queue_refuses(store, connection):
    await store.declare([QueueSpec(name="work", max_size=1)])
    await connection.execute(_ENQUEUE, None)
    with pytest.raises(asyncpg.PostgresError, match="queue work is full"):
        await connection.execute(_ENQUEUE, None)


async def test_an_enqueue_wakes_those_who_wait(store, connection):
    await asyncio.wait_for(store._wire.listening.wait(), 60)
    while await store.wait(0.1):
        pass
    await connection.execute(_ENQUEUE, None)
    assert await store.wait(60)


async def test_payloads_are_json_in_the_view_and_bytes_in_the_table(store, connection):
    await put(store, draft("a", payload=b'{"n": 1}'), draft("b", payload=b"\x00\xff", content_type=BYTES))
    sql = "SELECT payload ->> 'n' FROM redrive.outbox_events"
    assert {row[0] for row in await connection.fetch(sql)} == {"1", None}
    assert (await get(store, "b")).payload == b"\x00\xff"


# ---------------------------------------------------------------------- order and open transactions


async def test_an_open_transaction_keeps_no_worker_of_its_key_waiting(store, connection):
    await store.declare([QueueSpec(name="work", ordered=True)])
    await put(store, draft("first", key="k"))
    [running] = await claim(store)
    async with connection.transaction():
        await connection.execute(_ENQUEUE, "k")
        assert await store.settle([(running, DELIVERED)]) == (True,)
        assert await claim(store) == []
    assert names(await claim(store)) == ['{"order": 17}']


async def test_letters_of_a_key_run_in_the_order_of_their_commits(store, url):
    await store.declare([QueueSpec(name="work", ordered=True)])
    first, second = [await asyncpg.connect(url) for _ in range(2)]
    sql = "SELECT redrive.outbox_enqueue('order.created', to_jsonb($1::text), p_queue => 'work', p_key => 'k')"
    async with first.transaction():
        await first.execute(sql, "one")
        waiting = asyncio.create_task(second.execute(sql, "two"))
        await first.execute(sql, "three")
    await waiting
    order = [name for _ in range(3) for name in await settle_all(store, DELIVERED)]
    assert order == ['"one"', '"three"', '"two"']
    await first.close()
    await second.close()
