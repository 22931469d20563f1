"""The view `events`: the same letters for people who know the webhook inbox's table."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.stores.samples import DELIVERED, claim, draft, give_up, lost, names, put, retry

from redrive.core.policy import RetryPolicy
from redrive.stores.sqlite import SqliteStore


async def _one(sql, column):
    [(value,)] = sql(f"SELECT {column} FROM events")  # noqa: S608 - the test's own names
    return value


@pytest.mark.parametrize(
    ("move", "status"), [(None, "processing"), (DELIVERED, "completed"), (give_up(), "failed"), (retry(5), "pending")]
)
async def test_each_status_has_the_inboxes_word(sqlite, sql, move, status):
    await put(sqlite, "a")
    [taken] = await claim(sqlite)
    if move is not None:
        await sqlite.settle([(taken, move)])
    assert await _one(sql, "status") == status


@pytest.mark.parametrize(("move", "attempts"), [(None, 0), (DELIVERED, 0), (give_up(), 1), (retry(5), 1), (lost(), 1)])
async def test_attempts_count_tries_that_failed_or_were_lost(sqlite, sql, move, attempts):
    await put(sqlite, "a")
    assert await _one(sql, "attempts") == 0
    [taken] = await claim(sqlite)
    if move is not None:
        await sqlite.settle([(taken, move)])
    assert await _one(sql, "attempts") == attempts


async def test_a_letter_that_backs_off_shows_when_in_fixed_width_utc(sqlite, sql):
    await put(sqlite, "a")
    assert await _one(sql, "retry_after") is None
    [taken] = await claim(sqlite)
    await sqlite.settle([(taken, retry(90.5))])
    assert await _one(sql, "retry_after") == "2026-01-01T00:01:30.500Z"
    assert await _one(sql, "attempts") == 1
    assert await _one(sql, "last_error") == "boom"


async def test_backoff_survives_a_restart(sqlite, path, clock):
    await put(sqlite, "a")
    [taken] = await claim(sqlite)
    policy = RetryPolicy.inbox()
    await sqlite.settle([(taken, retry(policy.delay(1, 0.5)))])
    await sqlite.close()
    again = SqliteStore(path, clock=clock)
    await again.open()
    clock.advance(9)
    assert await claim(again) == []
    clock.advance(1)
    assert names(await claim(again)) == ["a"]
    await again.close()


async def test_a_large_payload_is_shown_whole(sqlite, sql):
    large = b"x" * 100_000
    await put(sqlite, draft("a", payload=large))
    assert await _one(sql, "payload") == large


async def test_the_startup_loaders_query_skips_what_backs_off_until_it_is_due(sqlite, sql, clock):
    loader = """SELECT CAST(payload AS TEXT) FROM events
                 WHERE status IN ('pending', 'processing') AND (retry_after IS NULL OR retry_after <= ?)"""
    await put(sqlite, "waits", "runs")
    [waits, _runs] = await claim(sqlite)
    await sqlite.settle([(waits, retry(90.5))])
    await put(sqlite, "new")

    def found():  # at the clock's time, as ISO 8601
        now = datetime.fromtimestamp(clock.wall_us() / 1e6, UTC)
        return sorted(payload for (payload,) in sql(loader, now.isoformat(timespec="milliseconds")))

    assert found() == ["new", "runs"]
    clock.advance(90)
    assert found() == ["new", "runs"]
    clock.advance(1)
    assert found() == ["new", "runs", "waits"]


async def test_the_query_for_dead_letters_finds_what_used_up_its_attempts(sqlite, sql, clock):
    await put(sqlite, "used up", "rejected")
    for attempt in range(1, 6):
        taken = {names([each])[0]: each for each in await claim(sqlite)}
        for name, each in taken.items():
            gives_up = name == "rejected" or attempt == 5
            await sqlite.settle([(each, give_up() if gives_up else retry(1))])
        clock.advance(1)
    dead = "SELECT CAST(payload AS TEXT) FROM events WHERE status = 'failed'"
    assert sql(f"{dead} AND attempts >= ?", 5) == [("used up",)]
    assert sorted(sql(dead)) == [("rejected",), ("used up",)]
