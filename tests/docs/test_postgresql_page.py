"""The page about the schema, compared with a real server: every table, column, parameter and statement."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import DOCS, blocks
from tests.stores.conftest import server_url

from redrive import Letter

PAGE = DOCS / "reference" / "postgresql.md"
TEXT = PAGE.read_text(encoding="utf-8")
TYPES = {"timestamp with time zone": "timestamptz"}
FOR_PEOPLE = re.findall(r"^### (outbox_\w+)$", TEXT, re.MULTILINE)
SAME = {"due_at", "created_at", "updated_at", "first_failed_at", "failed_at"}  # properties of a letter


def section(title):
    """Return the part of the page under a heading."""
    return re.split(r"^##+ ", TEXT.split(f" {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(title):
    """Return the rows of the table under a heading, without its head."""
    found = [line.split("|")[1:-1] for line in section(title).splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line] for line in found]


@pytest.fixture
async def connection(tmp_path):
    asyncpg = pytest.importorskip("asyncpg")
    from tests.stores.fresh import FreshStore  # noqa: PLC0415 - only where there is a driver

    store = FreshStore(server_url(), tmp_path, None)
    await store.open()
    opened = await asyncpg.connect(server_url())
    yield opened
    await opened.close()
    await store.close()


async def columns(connection, table):
    found = await connection.fetch(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = 'redrive' AND table_name = $1 ORDER BY ordinal_position", table
    )  # fmt: skip
    return [(name, TYPES.get(kind, kind)) for name, kind in found]


async def test_every_table_is_named_and_no_other(connection):
    found = await connection.fetch("SELECT table_name FROM information_schema.tables WHERE table_schema = 'redrive'")
    explained = set(re.findall(r"^## The (?:table|view) (\w+)$", TEXT, re.MULTILINE))
    others = {name.strip("`") for name, *_ in rows("The other tables")}
    assert {name for (name,) in found} == explained | others
    assert not explained & others


@pytest.mark.parametrize("table", ["outbox", "event_handled", "subscription"])
async def test_every_column_is_explained_in_its_order(connection, table):
    said = [(name.strip("`"), kind) for name, kind, *_ in rows(f"The table {table}")]
    assert said == await columns(connection, table)


async def test_the_view_has_the_columns_that_the_page_names(connection):
    [line] = [line for line in section("The view outbox_events").splitlines() if line.startswith("Its columns")]
    found = [name for name, _ in await columns(connection, "outbox_events")]
    assert re.findall(r"`(\w+)`", line.split(":")[1]) == found


def test_every_field_of_a_letter_has_a_column():
    named = {name for row in rows("The table outbox") for name in re.findall(r"`(\w+)`", row[2])}
    fields = {
        name.replace("_us", "_at") if name.replace("_us", "_at") in SAME else name for name in Letter.__struct_fields__
    }
    assert named == fields


@pytest.mark.parametrize("function", FOR_PEOPLE)
async def test_the_parameters_of_a_function_are_those_of_the_page(connection, function):
    signature = await connection.fetchval(
        "SELECT pg_get_function_arguments(p.oid) FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace "
        "WHERE n.nspname = 'redrive' AND p.proname = $1", function
    )  # fmt: skip
    found = re.findall(r"(\w+) ([a-z ]+?)(?: DEFAULT ('?.*?'?)(?:::[a-z ]+)?)?(?:, |$)", signature)
    given = [(name, TYPES.get(kind, kind), bool(default)) for name, kind, default in found]
    assert [(name.strip("`"), kind, bool(default)) for name, kind, default, _ in rows(function)] == given
    for (*_, default), (*_, said, _) in zip(found, rows(function), strict=True):
        assert not said.startswith("`") or said.strip("`") in {default, f"'{default}'", "'0'"}


async def test_every_statement_of_the_page_runs(connection):
    assert len(blocks(PAGE, "sql")) == 8
    for block in blocks(PAGE, "sql"):
        async with connection.transaction():
            await connection.execute(block.code)
