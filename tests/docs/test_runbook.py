"""The SQL that pages show is run as it stands, on letters that failed."""

from __future__ import annotations

import asyncio

import pytest
from tests.docs.pages import DOCS, blocks, name
from tests.stores.conftest import server_url
from tests.stores.samples import check_books, dead, draft, failure, get, letter_id

PAGES = [DOCS / "how-to" / "runbook.md"]


@pytest.fixture
async def store(tmp_path):
    url = server_url()
    from tests.stores.fresh import FreshStore  # noqa: PLC0415 - only where there is a driver

    opened = FreshStore(url, tmp_path, None)
    await opened.open()
    yield opened
    await check_books(opened)
    await opened.close()


def statements(page) -> list[str]:
    told = {":'id'": f"'{letter_id('a')}'", ":'group'": "'f1'"}
    text = "\n".join(block.code for block in blocks(page, "sql"))
    for variable, value in told.items():
        text = text.replace(variable, value)
    return [statement.strip() for statement in text.split(";") if statement.strip()]


async def answers(url: str, page) -> dict[str, list]:
    import asyncpg  # noqa: PLC0415 - only where there is a driver

    connection = await asyncpg.connect(url)
    try:
        return {statement: await connection.fetch(statement) for statement in statements(page)}
    finally:
        await asyncio.wait_for(connection.close(), 60)


@pytest.mark.parametrize("page", PAGES, ids=name)
async def test_every_statement_of_the_runbook_runs_and_finds_what_it_says(store, page):
    await dead(store, draft("a", payload=b'{"order":17}'), "b", "c", what=failure("the bank is away"))
    found = await answers(server_url(), page)
    empty = [statement for statement, rows in found.items() if not rows]
    assert empty == []
    assert len(found) >= 10
    assert [rows[0]["balanced"] for rows in found.values() if "balanced" in rows[0]] == [True]
    one, many = [rows for statement, rows in found.items() if "outbox_replay(" in statement]
    assert (len(one), many[0]["count"]) == (1, 2)
    letters = [await get(store, each) for each in "abc"]
    assert {(letter.status, letter.cycles) for letter in letters} == {("pending", 1)}
    assert {letter.failure_history[0].replayed_by for letter in letters} == {"ana@ops"}
    assert [entry.verb for entry in await store.audit(limit=3)] == ["replay"] * 3
