"""The maintained counts: what they cost, and that nothing is left of letters that are gone."""

from __future__ import annotations

from tests.stores.samples import KIND, QUEUE, act, draft, failure, put

from redrive.stores.contract import QueueSpec, Retention

MANY = 500
ROWS_READ = """
SELECT (SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
          WHERE schemaname = 'redrive' AND relname = 'outbox_tallies')
"""
FLUSH = "SELECT pg_stat_force_next_flush()"


async def many_distinct(store) -> list[str]:
    """Keep dead letters of which no two have the same error; return their names."""
    names = [f"d{n}" for n in range(MANY)]
    await put(store, *(draft(name, failure=failure(name, error_type=f"E{name}", fingerprint=name)) for name in names))
    return names


async def test_purged_dead_letters_leave_no_count_and_no_group_behind(store, connection):
    names = await many_distinct(store)
    await connection.fetchval("SELECT redrive.outbox_fold(100000)")
    for verb in ("archive", "purge"):
        await act(store, verb, *names)
    await connection.fetchval("SELECT redrive.outbox_fold(100000)")
    left = await connection.fetch(
        "SELECT queue, kind, status, n FROM redrive.outbox_tallies "
        "WHERE n <> 0 OR status NOT IN ('pending', 'in_flight') ORDER BY status"
    )
    assert [tuple(row) for row in left] == [(QUEUE, KIND, "enqueued", MANY), (QUEUE, KIND, "purged", MANY)]

    await connection.execute("UPDATE redrive.outbox_groups SET last_seen_at = last_seen_at - interval '1 day'")
    await store.retain(Retention())
    assert await connection.fetchval("SELECT count(*) FROM redrive.outbox_groups") == 0


async def test_a_limited_queue_reads_none_of_the_counts_of_dead_letters(store, connection):
    await store.declare([QueueSpec(name=QUEUE, max_size=100)])
    await many_distinct(store)
    await connection.fetchval("SELECT redrive.outbox_fold(100000)")
    await store._server.ask(lambda own, _: own.execute(FLUSH))
    before = await connection.fetchval(ROWS_READ)
    for n in range(10):
        await put(store, f"new{n}")
    await store._server.ask(lambda own, _: own.execute(FLUSH))

    assert await connection.fetchval(ROWS_READ) - before < MANY
