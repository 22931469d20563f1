"""Opening: whose schema it is, whether the server can be trusted, and what is missing."""

from __future__ import annotations

import sys

import pytest
from tests.stores.samples import get, put

from redrive.errors import SchemaMismatch, SettingsError, StoreUnavailable
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.sql import migrating, schema
from redrive.wiring import open_store


async def test_a_schema_of_any_name_keeps_its_own_letters(store, url, connection):
    await connection.execute('DROP SCHEMA IF EXISTS "core and more" CASCADE')
    other = open_store(f"{url}?schema=core+and+more")
    await other.open()
    await put(other, "a")
    assert await connection.fetchval('SELECT count(*) FROM "core and more".outbox') == 1
    assert await store.find(_everything()) != await other.find(_everything())
    await other.close()


def _everything():
    from redrive.core.query import parse  # noqa: PLC0415

    return parse("")


async def test_an_older_schema_is_left_alone_until_it_is_migrated(store, url, connection):
    await connection.execute("UPDATE redrive.outbox_meta SET version = version - 1")
    try:
        with pytest.raises(SchemaMismatch, match="redrive migrate"):
            await PostgresStore(url).open()
    finally:
        await connection.execute("UPDATE redrive.outbox_meta SET version = version + 1")


async def test_a_newer_schema_is_used_as_long_as_it_says_that_it_fits(store, url, connection):
    newest = schema.newest()
    await connection.execute("UPDATE redrive.outbox_meta SET version = $1", newest + 3)
    try:
        newer = PostgresStore(url)
        await newer.open()
        await newer.close()
        await connection.execute("UPDATE redrive.outbox_meta SET oldest = $1", newest + 1)
        with pytest.raises(SchemaMismatch, match="upgrade redrive"):
            await PostgresStore(url).open()
    finally:
        await connection.execute("UPDATE redrive.outbox_meta SET version = $1, oldest = 1", newest)


async def test_functions_of_another_version_are_refused_until_they_are_replaced(store, url, connection):
    await connection.execute("UPDATE redrive.outbox_meta SET functions = 'other'")
    try:
        with pytest.raises(SchemaMismatch, match=r"other SQL functions than this version.*redrive migrate"):
            await PostgresStore(url).open()
    finally:
        await PostgresStore(url).migrate()
    assert await migrating.version(connection, "redrive") == (schema.newest(), 1, schema.digest())
    again = PostgresStore(url)
    await again.open()
    await again.close()


async def test_functions_of_a_newer_version_are_used_and_stay(store, url, connection):
    newest = schema.newest()
    await connection.execute("UPDATE redrive.outbox_meta SET version = $1, functions = 'newer'", newest + 3)
    try:
        await PostgresStore(url).migrate()
        older = PostgresStore(url)
        await older.open()
        await older.close()
        assert await older.script() == ""
        assert await migrating.version(connection, "redrive") == (newest + 3, 1, "newer")
    finally:
        digest = schema.digest()
        await connection.execute("UPDATE redrive.outbox_meta SET version = $1, functions = $2", newest, digest)


async def test_a_schema_from_before_the_first_version_is_refused_with_a_way_out(store, url, connection):
    await connection.execute("DROP SCHEMA IF EXISTS early CASCADE; CREATE SCHEMA early")
    await connection.execute("CREATE TABLE early.outbox_meta (version integer, oldest integer)")
    early = PostgresStore(url, schema="early")
    for use in (early.open, early.migrate):
        with pytest.raises(SchemaMismatch, match=r"before 0\.1\.0 made it.*redrive copy"):
            await use()


@pytest.mark.parametrize("there", [False, True], ids=["a new schema", "other functions"])
async def test_migrating_runs_exactly_what_the_script_shows(store, connection, there):
    await connection.execute("DROP SCHEMA IF EXISTS shown CASCADE")
    if there:
        await migrating.migrate(connection, "shown")
        await connection.execute("UPDATE shown.outbox_meta SET functions = 'other'")
    shown = migrating.script("shown", await migrating.version(connection, "shown"))
    ran: list[str] = []
    with connection.query_logger(lambda record: ran.append(record.query)):
        await migrating.migrate(connection, "shown")
    looks = ("SELECT EXISTS", "SELECT relname", "SELECT version")
    changes = [text for text in ran[: ran.index("COMMIT;") + 1] if not text.lstrip().startswith(looks)]
    begin, *inside, commit = changes
    assert ("BEGIN" in begin, commit) == (True, "COMMIT;")
    assert shown.partition("COMMIT;")[0].splitlines() == ["BEGIN;", *"\n".join(inside).splitlines()]
    assert ("outbox_missing_indexes() \\gexec" in shown) == there


async def test_migrating_twice_changes_nothing_and_the_script_says_so(store, url):
    await put(store, "a")
    again = PostgresStore(url)
    await again.migrate()
    assert await again.script() == ""
    assert (await get(store, "a")).payload == b"a"


async def test_migrating_by_an_older_release_leaves_the_number_of_a_newer_schema_as_it_is(store, url, connection):
    newest = schema.newest()
    await connection.execute("UPDATE redrive.outbox_meta SET version = $1", newest + 3)
    try:
        await PostgresStore(url).migrate()
        assert await migrating.version(connection, "redrive") == (newest + 3, 1, schema.digest())
    finally:
        await connection.execute("UPDATE redrive.outbox_meta SET version = $1", newest)


async def test_the_script_makes_the_whole_schema(store, connection):
    await connection.execute("DROP SCHEMA IF EXISTS by_hand CASCADE")
    await connection.execute(migrating.script("by_hand"))  # a new schema needs no psql
    assert await migrating.version(connection, "by_hand") == (schema.newest(), 1, schema.digest("by_hand"))


async def test_a_user_who_may_make_no_schemas_can_use_one_that_is_there(store, url, connection):
    await connection.execute("DROP SCHEMA IF EXISTS given CASCADE; DROP ROLE IF EXISTS modest")
    await connection.execute("CREATE ROLE modest LOGIN; CREATE SCHEMA given AUTHORIZATION modest")
    modest = PostgresStore(url.replace("postgres@", "modest@"), schema="given")
    await modest.open()
    await put(modest, "a")
    assert (await get(modest, "a")).payload == b"a"
    await modest.migrate()
    await modest.close()


@pytest.mark.parametrize(
    "name", ["", 'a"b', "a'b", "{x}", "x" * 64, "a$$b", "a$x$", "a\nb", "a\u2028b", "a\x00b", "a\\b", "\ud800"]
)
def test_a_schema_name_that_nobody_should_have_is_refused(name):
    with pytest.raises(SettingsError, match="cannot use the schema"):
        PostgresStore("postgresql://localhost/x", schema=name)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ana:s3cret@db:5432/shop",
        "postgresql://ana:s%2Fcr%23t@one:5432,two:5433/shop?target_session_attrs=read-write",
        "postgresql://[::1]:5432/shop",
        "postgresql://ana@%2Frun%2Fpostgresql/shop",
        "postgresql:///shop?host=/run/postgresql&user=ana@example",
        "postgres://",
    ],
)
def test_every_form_of_a_servers_url_is_taken(url):
    assert isinstance(open_store(url), PostgresStore)


async def test_what_the_driver_cannot_read_of_a_url_is_not_shown():
    with pytest.raises(SettingsError, match="percent-encode") as refused:
        await PostgresStore("postgresql://ana:hunter2/shop").open()
    assert "hunter2" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_a_missing_driver_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("redrive.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(SettingsError, match=r"pip install 'redrive\[postgres\]'"):
        open_store("postgresql://user:secret@localhost/x")


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/x", "postgresql://nobody@127.0.0.1:1/x?pooled=yes"])
async def test_a_server_that_is_away_is_said_to_be_away(url, monkeypatch):
    monkeypatch.setattr("redrive.stores.postgres.server.connections.PATIENCE", 0.0)
    with pytest.raises(StoreUnavailable, match="cannot reach PostgreSQL"):
        await open_store(url).open()


async def test_a_wrong_database_is_said_to_be_wrong(url):
    with pytest.raises(StoreUnavailable, match="check the URL"):
        await open_store(url.replace("/postgres", "/nowhere")).open()


async def test_a_store_works_without_prepared_statements(url, store):
    """Behind a transaction-mode pooler a statement prepared on one connection is not there on the next."""
    pooled = open_store(f"{url}?pooled=yes&listen=no")
    await pooled.open()
    await put(pooled, "a")
    assert (await get(pooled, "a")).payload == b"a"
    await pooled.close()
