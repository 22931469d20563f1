"""Migrations: what is released stays as it is, and indexes are built while letters move."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers import contrib
from tests.servers.postgres import NO_DISK, Missing, running
from tests.stores.conftest import server_url
from tests.stores.samples import draft, get, put
from tests.torture import previous
from tests.torture.nursery import ROOT

from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.sql import migrating, schema

asyncpg = pytest.importorskip("asyncpg")

SUMS = Path(__file__).parents[2] / "migrations.sha256"
FOLDER = ROOT / "src" / "redrive" / "stores"
INDEX = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('redrive.outbox_failed_error')"
BUILDING = "SELECT pid FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting for %'"  # by now the index is there


def test_a_migration_that_was_released_is_never_edited():
    lines = [line.split() for line in SUMS.read_text().splitlines() if line and not line.startswith("#")]
    kept = {name: digest for digest, name in lines}
    files = sorted((FOLDER / "postgres" / "sql" / "migrations").glob("*.sql"))
    found = {str(file.relative_to(FOLDER)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    functions = f"functions@{schema.newest()}"  # with the number that tells which of two are newer
    newer = {**found, functions: schema.digest()}
    assert newer == kept, f"write another migration, if only with a comment for functions; its lines go to {SUMS.name}"


async def test_an_upgraded_schema_is_the_same_as_a_new_one(store, connection):
    await connection.execute("DROP SCHEMA IF EXISTS upgraded CASCADE; DROP SCHEMA IF EXISTS made CASCADE")
    await connection.execute(previous.made("upgraded"))
    await migrating.migrate(connection, "upgraded")
    await migrating.migrate(connection, "made")
    assert await _described(connection, "upgraded") == await _described(connection, "made")


async def _described(connection, name: str) -> set[str]:
    """Return every column, index, function, view, trigger, storage option and constraint of a schema, as text."""
    rows = await connection.fetch(
        """
        SELECT format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default)
          FROM information_schema.columns WHERE table_schema = $1
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = $1
        UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = $1::regnamespace
        UNION ALL SELECT viewname || definition FROM pg_views WHERE schemaname = $1
        UNION ALL SELECT pg_get_triggerdef(t.oid) FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
                   WHERE c.relnamespace = $1::regnamespace AND NOT t.tgisinternal
        UNION ALL SELECT relname || reloptions::text FROM pg_class
                   WHERE relnamespace = $1::regnamespace AND reloptions IS NOT NULL
        UNION ALL SELECT conrelid::regclass || pg_get_constraintdef(oid) FROM pg_constraint
                   WHERE connamespace = $1::regnamespace AND conrelid <> 0
        """,
        name,
    )
    assert len(rows) > 100
    return {row[0].replace(f'"{name}".', "").replace(f"{name}.", "") for row in rows}


# ---------------------------------------------------------------------- on a server that has pg_trgm


@pytest.fixture(scope="module")
def whole_server():
    """A server with its extensions, so that there is an index to build."""
    server_url()
    try:
        server = running(contrib.binaries(), **NO_DISK)
    except Missing as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))
    with server as started:
        yield started


@pytest.fixture
async def older(whole_server):
    """A schema of the previous version with a letter in it, and two connections."""
    whole_server.psql("DROP SCHEMA IF EXISTS redrive CASCADE;" + previous.made())
    first, second = await asyncpg.connect(whole_server.url), await asyncpg.connect(whole_server.url)
    await first.execute("SELECT redrive.outbox_enqueue('before', '{}')")
    yield whole_server, first, second
    await first.close()
    await second.close()


async def _building(connection) -> int:
    """Wait until the building of an index waits for somebody, and return whose process builds it."""
    async with asyncio.timeout(60):
        while (pid := await connection.fetchval(BUILDING)) is None:  # noqa: ASYNC110 - another process's event
            await asyncio.sleep(0.01)
    return pid


@pytest.mark.slow
async def test_letters_move_while_an_index_is_built(older):
    server, user, other = older
    store = PostgresStore(server.url)
    transaction = user.transaction()
    await transaction.start()
    await user.execute("SELECT redrive.outbox_enqueue('during', '{}')")  # the index must wait for its end
    migrating = asyncio.create_task(store.migrate())
    await _building(other)
    await asyncio.wait_for(other.execute("SELECT redrive.outbox_enqueue('beside', '{}')"), 30)
    await asyncio.wait_for(other.execute("UPDATE redrive.outbox SET why = 'moved' WHERE event_type = 'before'"), 30)
    assert not migrating.done()
    await transaction.commit()
    assert await asyncio.wait_for(migrating, 60) == []
    assert await other.fetchval(INDEX)


@pytest.mark.slow
async def test_an_index_whose_building_was_interrupted_is_made_again(older):
    server, user, other = older
    store = PostgresStore(server.url)
    transaction = user.transaction()
    await transaction.start()
    await user.execute("SELECT redrive.outbox_enqueue('during', '{}')")
    connection = await asyncpg.connect(server.url)
    task = asyncio.create_task(migrating.migrate(connection, "redrive"))
    await other.execute("SELECT pg_cancel_backend($1)", await _building(other))
    with pytest.raises(asyncpg.QueryCanceledError):
        await task
    await connection.close()
    await transaction.commit()
    assert await other.fetchval(INDEX) is False
    await store.open()
    assert not store.features.search  # an index that is not whole finds nothing
    await store.close()
    assert await store.migrate() == []
    assert await other.fetchval(INDEX)


@pytest.mark.slow
async def test_the_printed_sql_builds_the_index_in_psql(older):
    server, _, connection = older
    server.psql(await PostgresStore(server.url).script())
    assert await connection.fetchval(INDEX)
    assert await migrating.version(connection, "redrive") == (schema.newest(), 1, schema.digest())


@pytest.mark.slow
async def test_a_user_who_may_create_no_extension_migrates_without_it_and_is_told(older):
    server, _, connection = older
    await connection.execute("DROP SCHEMA IF EXISTS given CASCADE; DROP ROLE IF EXISTS modest")
    await connection.execute("CREATE ROLE modest LOGIN; CREATE SCHEMA given AUTHORIZATION modest")
    url = server.url.replace("postgres@", "modest@")
    told = _redrive("migrate", url=f"{url}?schema=given")
    assert "is ready" in told.stdout
    assert "pg_trgm" in told.stderr
    modest = PostgresStore(url, schema="given")
    await modest.open()
    assert not modest.features.search
    await put(modest, draft("a"))
    assert (await get(modest, "a")).payload == b"a"
    await modest.close()
    await connection.execute("CREATE EXTENSION pg_trgm")
    assert await modest.migrate() == []
    await modest.open()
    assert modest.features.search
    await modest.close()
    await connection.execute("DROP SCHEMA given CASCADE; DROP ROLE modest")


def _redrive(*words: str, url: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "REDRIVE_URL": url, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "redrive.cli", *words]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True)
