"""
Migrations: how a schema is made, brought up to date, and refused.

Owns which versions of schema and code fit together, and the SQL that changes a schema: `migrate` runs it, `script`
prints the same text. Knows no letters.

Opening a store makes a schema that is missing, as the embedded store makes its file. Only `redrive migrate` changes one
that exists, because a worker that restarts must not alter tables while others use them.

Workers of the version before go on while a schema is migrated. Three rules keep this promise for later versions:
- A migration adds (a table, a column with a default, an index); it removes only what no supported version uses.
- A function keeps its signature and its meaning. One that needs others gets a new name, and the old one stays as long
  as a supported version calls it; then a migration drops it.
- Every change of a function comes with a migration, if only one that holds a comment, because the schema's number
  tells which functions are newer. `tests/stores/migrations.sha256` notices a change without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.errors import SchemaMismatch, StoreUnavailable
from redrive.stores.postgres.sql import schema as schemas
from redrive.stores.postgres.sql.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_TRIGRAMS = (
    "searching the texts of errors has no index and looks at every dead letter: the extension pg_trgm is not installed "
    "on this server, or this user may not create it; once it is there, run `redrive migrate` again"
)
# Read from the catalogue itself: to_regclass() may answer from a cache that is older than the migration we waited for.
_IS_THERE = """
SELECT EXISTS (SELECT 1 FROM pg_attribute AS a
                WHERE a.attrelid = c.oid AND a.attname = 'functions' AND NOT a.attisdropped) AS fits
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = $1 AND c.relname = 'outbox_meta'
"""
_FOREIGN = """
SELECT relname FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace
 WHERE nspname = $1 AND relname IN ('outbox', 'event_handled') ORDER BY relname DESC LIMIT 1
"""
# A migration that waits for a table's lock blocks every later user of the table: better to give up and run again.
_NO_QUEUE = "SET LOCAL lock_timeout = '2s';"
_PATIENCE = 86_400.0  # seconds: building an index may take long
_GEXEC = """
-- Indexes that are built while letters move; psql runs what the next line returns. Without psql, run each of the
-- statements that it returns by itself, outside a transaction. May be run again if it was interrupted.
{} \\gexec
"""


class Found(NamedTuple):
    """What a schema says about itself."""

    version: int  # the newest migration that was applied
    oldest: int  # the oldest version of redrive, by its schema's number, that works with it
    functions: str  # the digest of its functions


def script(schema: str, found: Found | None = None) -> str:
    """Return one SQL text for psql that brings a schema from *found* up to date, for people who run their own."""
    steps = list(_steps(schema, found))
    if not steps:
        return ""
    text = "\n".join(("BEGIN;", _lock(schema), _NO_QUEUE, *steps, "COMMIT;\n"))
    return text + _GEXEC.format(_missing(schema)) if found else text  # a new one gets its indexes at once


def _lock(schema: str) -> str:
    """One migration of a schema at a time; *schema* was checked, and holds no quote."""
    return f"SELECT pg_advisory_xact_lock(hashtextextended('redrive {schema}', 5));"


def _steps(schema: str, found: Found | None) -> Iterator[str]:
    newest, digest = schemas.newest(schema), schemas.digest(schema)
    if found is not None and (found.version > newest or (found.version, found.functions) == (newest, digest)):
        return  # up to date, or a newer version of redrive was here: what that one made stays
    if found is None:
        yield _create(schema)
    yield from (text for number, text in schemas.migrations(schema) if found is None or number > found.version)
    if found is None or found.functions != digest:
        yield schemas.functions(schema)
    yield f"UPDATE {quoted(schema)}.outbox_meta SET version = {newest}, functions = '{digest}';"  # noqa: S608 - ours


def _create(schema: str) -> str:
    """Make the schema if it is missing; IF NOT EXISTS would ask for the right to make one even where it is there."""
    name = quoted(schema)  # which refuses every quote, so that it may stand in one
    missing = f"NOT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = '{schema}')"  # noqa: S608
    return f"DO $make_schema$ BEGIN IF {missing} THEN CREATE SCHEMA {name}; END IF; END $make_schema$;"


def _missing(schema: str) -> str:
    return f"SELECT * FROM {quoted(schema)}.outbox_missing_indexes()"  # noqa: S608 - quoted


async def migrate(connection: Any, schema: str) -> int:
    """
    Bring the schema up to date, one caller at a time; return its version.

    One transaction does everything but the indexes. Those are built afterwards, while letters move. If that is
    interrupted, or was not possible, the next call goes on with it.
    """
    quoted(schema)
    async with connection.transaction():
        await connection.execute(_lock(schema), timeout=_PATIENCE)
        await connection.execute(_NO_QUEUE)
        found = await _found(connection, schema)
        if found is None:
            await _refuse_foreign(connection, schema)
        for step in _steps(schema, found):
            await connection.execute(step, timeout=_PATIENCE)
    await _build_indexes(connection, schema)
    return schemas.newest(schema)


async def _refuse_foreign(connection: Any, schema: str) -> None:
    """Raise SchemaMismatch if the schema holds a table under one of our names that redrive did not make."""
    table = await connection.fetchval(_FOREIGN, schema)
    if table is not None:
        raise SchemaMismatch(
            f"cannot make redrive's tables in schema {schema!r}: it holds a table {table!r} that redrive did not make. "
            f"Give redrive a schema of its own (`?schema=redrive` in the URL), or move the rows of {table!r} into "
            'redrive as the page "Adopt an existing outbox" shows; nothing was changed'
        )


async def _build_indexes(connection: Any, schema: str) -> None:
    async with connection.transaction():  # a pooler keeps one server connection for a transaction, not for longer
        missing = await connection.fetch(_missing(schema))
    for row in missing:
        await connection.execute(row[0], timeout=_PATIENCE)


async def version(connection: Any, schema: str) -> Found | None:
    """Return what the schema says about itself; None if it is missing or empty."""
    async with connection.transaction():  # a pooler keeps one server connection for a transaction, not for longer
        return await _found(connection, schema)


async def _found(connection: Any, schema: str) -> Found | None:
    fits = await connection.fetchval(_IS_THERE, schema)
    if fits is None:
        return None
    if not fits:
        raise SchemaMismatch(
            f"cannot use schema {schema!r}: a redrive from before 0.1.0 made it, and no migration leads on from there. "
            "Copy its letters into another store with that redrive (`redrive copy`), or name another schema with "
            "`?schema=` in the URL; nothing was changed"
        )
    name = quoted(schema)
    row = await connection.fetchrow(f"SELECT version, oldest, functions FROM {name}.outbox_meta")  # noqa: S608 - quoted
    return Found(row["version"], row["oldest"], row["functions"])


async def ensure(connection: Any, schema: str, *, create: bool = True) -> None:
    """Make a schema that is missing, or refuse it; raise SchemaMismatch for one that does not fit this version."""
    found = await version(connection, schema)
    if found is None and not create:
        raise StoreUnavailable(
            f"cannot open the store: schema {schema!r} has no redrive tables; make them with `redrive migrate`, or "
            "name another schema or database with --url or REDRIVE_URL"
        )
    if found is None:
        await migrate(connection, schema)
    elif (why := _unfit(schema, found)) is not None:
        raise SchemaMismatch(f"cannot open the store: schema {schema!r} {why}")


def _unfit(schema: str, found: Found) -> str | None:
    newest = schemas.newest(schema)
    if found.version < newest:
        return (
            f"is at {found.version}, and this version of redrive needs {newest}; run `redrive migrate` (running "
            "workers go on; `redrive migrate --print` shows the SQL)"
        )
    if found.oldest > newest:
        return (
            f"is at {found.version}, made by a newer redrive, and this version knows {newest}; upgrade redrive (the "
            "letters are untouched)"
        )
    if found.version == newest and found.functions != schemas.digest(schema):
        return (
            "has other SQL functions than this version of redrive, although its number is the same; run `redrive "
            "migrate` with the version that your workers run (`redrive migrate --print` shows the SQL)"
        )
    return None
