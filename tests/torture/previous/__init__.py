"""
The previous version, frozen: its schema, and a worker that knew nothing newer.

`schema.sql` is what `redrive migrate --print` of that version printed for an empty database; `statements.sql` and
`worker.py` are what its workers sent and did. When a version is released, copies of its schema and its statements
replace them, and `SCHEMA` becomes its number. Until 0.1.0 is released they follow the schema that it will bring.
"""

from __future__ import annotations

from pathlib import Path

from redrive.stores.postgres.sql import schema

SCHEMA = 1
_MADE = Path(__file__).parent / "schema.sql"
# An upgrade has all there is to do: indexes to build, because the server has pg_trgm by now, and functions to replace.
_OLDER = """
DROP EXTENSION IF EXISTS pg_trgm CASCADE;
DROP INDEX IF EXISTS {schema}.outbox_failed_folded;
UPDATE {schema}.outbox_meta SET functions = 'older';
"""


def made(name: str = "redrive") -> str:
    """Return the SQL that makes the schema of the previous version, under this *name*."""
    quoted = schema.quoted(name)
    text = _MADE.read_text().replace('"redrive"', quoted).replace("nspname = 'redrive'", f"nspname = '{name}'")
    return text + _OLDER.replace("{schema}", quoted)
