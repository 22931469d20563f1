"""
Workers of the previous schema while the schema is migrated under them.

Owns the frozen copy of the previous schema (`previous/`: copy the migrations there when a release is made),
and a next migration that does at once all that a migration may do: a column, an index, a table, and every
function written anew.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from tests.torture import workload

from redrive.stores.postgres import PostgresStore, schema

PREVIOUS = Path(__file__).parent / "previous"
_migrations = schema.migrations


def previous(name: str) -> list[tuple[int, str]]:
    """Return the migrations of the previous schema."""
    files = sorted(PREVIOUS.glob("*.sql"))
    return [(int(file.name.split("_")[0]), file.read_text().replace("{schema}", schema.quoted(name))) for file in files]


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
    return function.partition("AS $$")[0]


def work(url: str, **arguments: Any) -> None:
    """In a process of its own: a worker that knows the previous schema alone."""
    schema.migrations = previous
    workload.work(url=url, **arguments)


def migrate(url: str) -> None:
    """In a process of its own: `redrive migrate` of the next release."""
    schema.migrations = following
    asyncio.run(PostgresStore(url).migrate())
