"""What somebody wrote into a row by hand stops neither looking nor the letters beside it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from tests.stores.conftest import open_store, server_url
from tests.stores.samples import OPERATOR, WORKER, act, claim, dead, get, give_up, letter_id, names, put, retry

from redrive.core.letter import Priority, Status
from redrive.core.query import parse
from redrive.desk.look import views
from redrive.desk.look.explain import explained
from redrive.errors import MoveRefused
from redrive.stores.contract import WorkerBeat


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request, tmp_path, clock):
    """A store whose books are off, because somebody changed its rows."""
    async with open_store(request.param, tmp_path, clock) as opened:
        yield opened


@pytest.fixture
def by_hand(store, tmp_path):
    """Return how somebody sets a column with SQL of their own."""

    async def write(column: str, value: str, where: str = "true", table: str = "letters") -> None:
        if hasattr(store, "schema"):
            table = f"{store.schema}.{_TABLES[table]}"
        sql = f"UPDATE {table} SET {column} = {value} WHERE {where}"  # noqa: S608 - the test's own words
        if hasattr(store, "schema"):
            await _into_postgres(sql)
        else:
            with closing(sqlite3.connect(tmp_path / "redrive.db")) as connection, connection:
                connection.execute(sql)

    return write


_TABLES = {"letters": "outbox", "workers": "outbox_workers"}


async def _into_postgres(sql: str) -> None:
    import asyncpg  # noqa: PLC0415 - only where there is a driver

    connection = await asyncpg.connect(server_url())
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


def _json(store, text: str) -> str:
    return f"'{text}'::jsonb" if hasattr(store, "schema") else f"CAST('{text}' AS BLOB)"


def _is(name: str) -> str:
    return f"id = '{letter_id(name)}'"


async def test_a_status_that_no_release_knows_is_shown_and_no_verb_takes_it(store, by_hand):
    await put(store, "a", "b")
    await by_hand("status", "'retired'", _is("a"))
    page = await store.find(parse(""), limit=10)
    assert [(row.id, row.status) for row in views.listing(page).letters] == [
        (letter_id("b"), "pending"),
        (letter_id("a"), "retired"),
    ]
    assert views.sheet(await get(store, "a")).letter.status == "retired"
    assert (await explained(store, letter_id("a"))).status == "retired"
    for verb in ("replay", "archive", "cancel", "restore", "purge"):
        with pytest.raises(MoveRefused, match="it is retired"):
            await act(store, verb, "a")
    with pytest.raises(MoveRefused, match="it is retired"):
        await store.edit(letter_id("a"), b"{}", "application/json", version=1, **OPERATOR)
    assert names(await claim(store)) == ["b"]


@pytest.mark.parametrize(("number", "nearest"), [(7, Priority.LOW), (3, Priority.LOW), (-1, Priority.HIGH)])
async def test_a_priority_that_no_release_knows_is_shown_as_the_nearest(store, by_hand, clock, number, nearest):
    await put(store, "a", "b", "c")
    [first, *_] = await claim(store, 1)
    await by_hand("priority", str(number), f"NOT {_is('c')}")
    page = await store.find(parse(""), limit=10)
    assert [letter.priority for letter in page.letters] == [Priority.MEDIUM, nearest, nearest]
    assert {row.priority for row in views.listing(page).letters} == {"medium", nearest.name.lower()}
    assert await store.find(parse("-priority:high kind:*"), limit=10)
    assert names(await claim(store)) == ["c"]
    clock.advance(100)
    lost = {found.letter.id: found for found in await store.expired(10)}
    assert await store.settle([(lost[first.letter.id], give_up())]) == (True,)
    assert (await get(store, "a")).status is Status.FAILED


async def test_a_log_of_another_shape_is_no_log_and_its_letter_goes_on(store, by_hand):
    await dead(store, "b")
    await put(store, "a")
    await by_hand("tries", _json(store, '{"a": 1}'))
    await by_hand("failure_history", _json(store, '{"a": 1}'))
    assert [letter.tries for letter in (await store.find(parse(""), limit=10)).letters] == [(), ()]
    await act(store, "replay", "b")
    found = await claim(store)
    assert all(await store.settle([(each, retry()) for each in found]))
    assert len((await get(store, "b")).failure_history) == 1
    assert [len((await get(store, name)).tries) for name in "ab"] == [1, 1]


async def test_lines_of_another_shape_in_a_log_do_not_stop_the_next(store, by_hand):
    await put(store, "a")
    await by_hand("tries", _json(store, '[1, "x", null]'))
    await by_hand("failure_history", _json(store, "[1]"))
    [found] = await claim(store)
    assert await store.settle([(found, give_up())]) == (True,)
    await act(store, "replay", "a")
    assert (await get(store, "a")).status is Status.PENDING


async def test_a_worker_that_takes_what_nobody_can_read_is_listed_beside_the_others(store, by_hand):
    for name in (WORKER, "worker-2"):
        await store.extend(WorkerBeat(name=name, kinds=("k",)), [], lease=60)
    kinds = "'['::bytea" if hasattr(store, "schema") else "CAST('[' AS BLOB)"
    await by_hand("kinds", kinds, f"name = '{WORKER}'", "workers")
    assert [(beat.name, beat.kinds) for beat in await store.workers()] == [(WORKER, ()), ("worker-2", ("k",))]


async def test_a_large_payload_that_is_gone_stops_nobody(store, by_hand):
    if hasattr(store, "schema"):
        pytest.skip("payloads of every size stand in the row")
    await put(store, "a", "b")
    await by_hand("payload", "NULL", _is("a"))
    assert (await get(store, "a")).payload == b""
    assert len((await store.find(parse(""), limit=10)).letters) == 2
    assert len(await claim(store)) == 2
