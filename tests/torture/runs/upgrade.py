"""
Workers of one schema while the next one is made under them.

Owns a schema as the previous version made it, and a next migration that does at once all that a migration may do:
a column, an index, a table, and every function written anew.
"""

from __future__ import annotations

import asyncio
import re

from tests.torture.previous import SCHEMA

from redrive.stores.postgres import PostgresStore, schema

_migrations = schema.migrations


def previous(name: str = "redrive") -> str:
    """Return the SQL by which the previous version made its schema."""
    steps = [text for number, text in _migrations(name) if number <= SCHEMA]
    quoted = schema.quoted(name)
    number = f"UPDATE {quoted}.outbox_meta SET version = {SCHEMA};"  # noqa: S608 - our own number
    return "\n".join(["BEGIN;", f"CREATE SCHEMA {quoted};", *steps, number, "COMMIT;"])


def following(name: str) -> list[tuple[int, str]]:
    """Return this release's migrations, and one more."""
    found = _migrations(name)
    text = "\n".join(text for _, text in found)
    functions = re.findall(r"^CREATE (?:OR REPLACE )?FUNCTION .*?(?:\$\$;)$", text, re.DOTALL | re.MULTILINE)
    assert len(functions) > 20
    newest = {_signature(function): function for function in functions}.values()
    replaced = [re.sub(r"^CREATE (OR REPLACE )?", "CREATE OR REPLACE ", function) for function in newest]
    quoted = schema.quoted(name)
    more = (
        f"ALTER TABLE {quoted}.outbox ADD COLUMN of_the_next_release integer NOT NULL DEFAULT 7;\n"
        f"CREATE INDEX outbox_of_the_next_release ON {quoted}.outbox (of_the_next_release) WHERE status = 'failed';\n"
        f"CREATE TABLE {quoted}.outbox_later (one integer);\n"
    )
    return [*found, (found[-1][0] + 1, more + "\n".join(replaced))]


def _signature(function: str) -> str:
    return re.sub(r"^CREATE (OR REPLACE )?", "", function).partition(")")[0]


def migrate(url: str) -> None:
    """In a process of its own: `redrive migrate` of the next release."""
    schema.migrations = following
    asyncio.run(PostgresStore(url).migrate())
