"""
Workers of one schema while the next one is made under them.

Owns a next migration that does at once all that a migration may do: a column, an index, a table, and every function
replaced.
"""

from __future__ import annotations

import asyncio

from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.sql import schema

_migrations, _functions = schema.migrations, schema.functions


def following(name: str) -> list[tuple[int, str]]:
    """Return this version's migrations, and one more."""
    found, quoted = _migrations(name), schema.quoted(name)
    more = (
        f"ALTER TABLE {quoted}.outbox ADD COLUMN of_the_next_version integer NOT NULL DEFAULT 7;\n"
        f"CREATE INDEX outbox_of_the_next_version ON {quoted}.outbox (of_the_next_version) WHERE status = 'failed';\n"
        f"CREATE TABLE {quoted}.outbox_later (one integer);\n"
    )
    return [*found, (found[-1][0] + 1, more)]


def _replaced(name: str) -> str:
    return f"{_functions(name)}\n-- of the next version"  # another digest: every function is defined again


def migrate(url: str) -> None:
    """In a process of its own: `redrive migrate` of the next version."""
    schema.migrations, schema.functions = following, _replaced
    asyncio.run(PostgresStore(url).migrate())
