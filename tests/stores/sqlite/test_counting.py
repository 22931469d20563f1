"""The maintained counts: what they cost, and that nothing is left of letters that are gone."""

from __future__ import annotations

from tests.stores.samples import KIND, QUEUE, act, draft, failure, put

from redrive.stores.contract import QueueSpec, Retention
from redrive.stores.sqlite import transaction

DAY = 86_400.0
MANY = 2_000


async def many_distinct(store) -> list[str]:
    """Keep dead letters of which no two have the same error; return their names."""
    names = [f"d{n}" for n in range(MANY)]
    await put(store, *(draft(name, failure=failure(name, error_type=f"E{name}", fingerprint=name)) for name in names))
    return names


async def test_purged_dead_letters_leave_no_count_and_no_group_behind(sqlite, sql, clock):
    names = await many_distinct(sqlite)
    for verb in ("archive", "purge"):
        await act(sqlite, verb, *names)
    clock.advance(DAY)
    await sqlite.retain(Retention())

    assert sql("SELECT count(*) FROM groups") == [(0,)]
    left = sql("SELECT queue, kind, status, n FROM tallies WHERE n <> 0 OR status NOT IN ('pending', 'in_flight')")
    assert sorted(left) == [(QUEUE, KIND, "enqueued", MANY), (QUEUE, KIND, "purged", MANY)]


async def test_replayed_and_archived_dead_letters_leave_no_count_behind(sqlite, sql):
    names = await many_distinct(sqlite)
    await act(sqlite, "replay", *names[: MANY // 2])
    await act(sqlite, "archive", *names[MANY // 2 :])

    assert sql("SELECT count(*) FROM tallies WHERE status = 'failed'") == [(0,)]


async def test_a_limited_queue_reads_none_of_the_counts_of_dead_letters(sqlite, sql):
    await sqlite.declare([QueueSpec(name=QUEUE, max_size=10, max_in_flight=5)])
    await many_distinct(sqlite)
    await put(sqlite, "a")

    asked = transaction.COUNTED[2]
    plan = "\n".join(row[3] for row in sql(f"EXPLAIN QUERY PLAN {asked}", QUEUE, "pending", "in_flight"))
    assert "SEARCH tallies USING INDEX tallies_status (status=? AND queue=?)" in plan
    assert sql(asked, QUEUE, "pending", "in_flight") == [(1,)]
    read = "SELECT count(*) FROM tallies WHERE queue = ? AND status IN ('pending', 'in_flight')"
    assert sql(read, QUEUE) == [(1,)]  # what such a search walks, whatever has died


async def test_the_queues_are_found_without_reading_the_counts_of_dead_letters(sqlite, sql):
    await many_distinct(sqlite)

    from redrive.stores.sqlite import retention, shared_state  # noqa: PLC0415 - where the statements stand

    for asked in (shared_state.USED, retention.LINES):
        plan = "\n".join(row[3] for row in sql(f"EXPLAIN QUERY PLAN {asked}"))
        assert "tallies_status (status=?" in plan
    assert [state.spec.name for state in await sqlite.queues()] == [QUEUE]
