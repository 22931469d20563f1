"""
The schema: its name, its statements, its migrations.

Owns every place where a name becomes part of SQL text, the loader of `.sql` files, and which
versions of schema and code go together. Knows no letters.

A missing schema is made when a store is opened, as the embedded store makes its file; one that
is there is changed by `redrive migrate` alone, because a worker that restarts must not alter
tables under the others.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Any

from redrive.errors import SchemaMismatch, SettingsError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST = 63  # bytes that PostgreSQL keeps of a name
_UNFIT = re.compile(r"""["'{}\\]|\$.*\$""")  # what ends a name, or the text of a function that it stands in
NO_TRIGRAMS = (
    "searching the texts of errors has no index and looks at every dead letter: the extension pg_trgm is not installed "
    "on this server, or this user may not create it; once it is there, run `redrive migrate` again"
)
_NAME = "-- name: "
# Read from the catalogue itself: to_regclass() may answer from memory, as before we waited for another's migration.
_IS_THERE = """
SELECT EXISTS (SELECT 1 FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace
                WHERE nspname = $1 AND relname = 'outbox_meta')
"""
_FOREIGN = """
SELECT relname FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace
 WHERE nspname = $1 AND relname IN ('outbox', 'event_handled') ORDER BY relname DESC LIMIT 1
"""
# Whoever waits for a table keeps everybody waiting who comes later: better to give up, and to be asked again.
_NO_QUEUE = "SET LOCAL lock_timeout = '2s';"
_PATIENCE = 86_400.0  # seconds: building an index may take long
_GEXEC = """
-- Indexes that are built while letters move; psql runs what the next line returns. Without psql, run each of the
-- statements that it returns by itself, outside a transaction. May be run again if it was interrupted.
{} \\gexec
"""


def quoted(schema: str) -> str:
    """Return *schema* as it stands in SQL; raise SettingsError for a name that no schema should have."""
    if not 0 < len(schema.encode(errors="replace")) <= _LONGEST or not schema.isprintable() or _UNFIT.search(schema):
        fit = "1 to 63 bytes, and no quotes, braces, backslashes, control characters or two dollar signs"
        raise SettingsError([f"cannot use the schema {schema!r}; it must have {fit}"])
    return f'"{schema}"'


def statements(schema: str) -> dict[str, str]:
    """Return the named statements of `statements.sql` for *schema*."""
    text = (resources.files(__package__) / "statements.sql").read_text()
    blocks = text.replace("{schema}", quoted(schema)).split(_NAME)[1:]
    return {name.strip(): body.strip() for name, _, body in (block.partition("\n") for block in blocks)}


def migrations(schema: str) -> list[tuple[int, str]]:
    """Return the numbered SQL files for *schema*, oldest first."""
    folder = resources.files(__package__) / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [(int(file.name.split("_")[0]), file.read_text().replace("{schema}", quoted(schema))) for file in files]


def newest(schema: str = "redrive") -> int:
    """Return the schema's number that this release brings."""
    return migrations(schema)[-1][0]


def script(schema: str, found: int = 0) -> str:
    """Return one SQL text for psql that brings a schema from *found* up to date, for people who run their own."""
    steps = [text for number, text in migrations(schema) if number > found]
    if not steps:
        return ""
    text = "\n".join(("BEGIN;", _NO_QUEUE, *_steps(schema, steps), "COMMIT;\n"))
    return text + _GEXEC.format(_missing(schema)) if found else text  # a new one gets its indexes at once


def _steps(schema: str, steps: Iterable[str]) -> Iterable[str]:
    yield _create(schema)
    yield from steps
    # A newer release may have been here before: what it made stays, and so does its number.
    yield f"UPDATE {quoted(schema)}.outbox_meta SET version = greatest(version, {newest(schema)});"  # noqa: S608 - ours


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

    All in one transaction but the indexes: they are built afterwards, while letters move. If that is
    interrupted, or was not possible, the next call goes on with it.
    """
    async with connection.transaction():
        lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 5))"
        await connection.execute(lock, f"redrive {schema}", timeout=_PATIENCE)
        await connection.execute(_NO_QUEUE)
        found = await version(connection, schema)
        if found is None:
            await _refuse_foreign(connection, schema)
        for step in _steps(schema, [text for number, text in migrations(schema) if number > (found or (0, 0))[0]]):
            await connection.execute(step, timeout=_PATIENCE)
    await _build_indexes(connection, schema)
    return newest(schema)


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
    async with connection.transaction():  # a pooler keeps to one server for no less
        missing = await connection.fetch(_missing(schema))
    for row in missing:
        await connection.execute(row[0], timeout=_PATIENCE)


async def version(connection: Any, schema: str) -> tuple[int, int] | None:
    """Return the schema's number and the oldest one that still works with it; None if there is none."""
    if not await connection.fetchval(_IS_THERE, schema):
        return None
    row = await connection.fetchrow(f"SELECT version, oldest FROM {quoted(schema)}.outbox_meta")  # noqa: S608 - quoted
    return row["version"], row["oldest"]


async def ensure(connection: Any, schema: str, *, create: bool = True) -> None:
    """Make a schema that is missing, or refuse it; raise SchemaMismatch for one that does not fit this release."""
    async with connection.transaction():  # a pooler keeps to one server for no less
        found = await version(connection, schema)
    if found is None and not create:
        raise StoreUnavailable(
            f"cannot open the store: schema {schema!r} has no redrive tables; make them with `redrive migrate`, or "
            "name another schema or database with --url or REDRIVE_URL"
        )
    if found is None:
        await migrate(connection, schema)
    elif found[0] < newest(schema):
        raise SchemaMismatch(
            f"schema {schema!r} is at {found[0]}, and this release needs {newest(schema)}; run `redrive migrate` "
            "(running workers go on; `redrive migrate --print` shows the SQL)"
        )
    elif found[1] > newest(schema):
        raise SchemaMismatch(
            f"schema {schema!r} is at {found[0]}, made by a newer redrive, and this release knows {newest(schema)}; "
            "upgrade redrive (the letters are untouched)"
        )
