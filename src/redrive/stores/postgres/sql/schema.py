"""
What the schema is made of: its name in SQL, its tables, its functions.

Owns every place where a name or a constant becomes part of SQL text. Knows no connection and no letter.

`migrations/*.sql` make tables, indexes and types. They are numbered, run once, and only go forward.
`functions/*.sql` define every function, view and trigger once, with CREATE OR REPLACE. They run after the migrations
whenever their digest differs from the one that the schema keeps. Their constants come from `core`.
"""

from __future__ import annotations

import re
from hashlib import sha256

from redrive.core.changes import MAX_CYCLES, MAX_TRIES
from redrive.core.why import Why
from redrive.errors import SettingsError
from redrive.stores import sql_files

_PACKAGE = "redrive.stores.postgres.sql"
_LONGEST = 63  # bytes that PostgreSQL keeps of a name
_UNFIT = re.compile(r"""["'{}\\]|\$.*\$""")  # what ends a name, or the text of a function that it stands in
# The files of functions/, in the order in which they run: a function in LANGUAGE sql needs those that it calls.
FUNCTIONS = (
    "time", "counting", "ordering", "waiting", "settle", "put", "claim", "act", "again", "retain", "outbox",
    "broadcast", "people", "search",
)  # fmt: skip
# tries: lines of the attempt log; tries_before: those of them that stay when another is added; cycles: in the history
_CONSTANTS = {"tries": str(MAX_TRIES), "tries_before": str(MAX_TRIES - 1), "cycles": str(MAX_CYCLES)}
_REASONS = (Why.ENQUEUED, Why.SUCCEEDED, Why.BROADCAST, Why.REPLAYED, Why.ARCHIVED_BY, Why.RESTORED_BY)
_CONSTANTS |= {f"why_{why.name.lower()}": why.naming("") for why in _REASONS}  # SQL appends the operator's name itself


def quoted(schema: str) -> str:
    """Return *schema* as it stands in SQL; raise SettingsError for a name that no schema should have."""
    if not 0 < len(schema.encode(errors="replace")) <= _LONGEST or not schema.isprintable() or _UNFIT.search(schema):
        fit = "1 to 63 bytes, and no quotes, braces, backslashes, control characters or two dollar signs"
        raise SettingsError([f"cannot use the schema {schema!r}; it must have {fit}"])
    return f'"{schema}"'


def migrations(schema: str) -> list[tuple[int, str]]:
    """Return the numbered SQL files for *schema*, oldest first."""
    return sql_files.numbered(_PACKAGE, "migrations", {"schema": quoted(schema)})


def functions(schema: str) -> str:
    """Return the SQL that defines every function of *schema*; it may run any number of times."""
    pieces = {"schema": quoted(schema), **_CONSTANTS}
    return "\n".join(sql_files.filled(sql_files.read(_PACKAGE, f"functions/{file}.sql"), pieces) for file in FUNCTIONS)


def newest(schema: str = "redrive") -> int:
    """Return the schema's number that this version of redrive brings."""
    return migrations(schema)[-1][0]


def digest(schema: str = "redrive") -> str:
    """Return what tells these functions from those of another version."""
    return sha256(functions(schema).encode()).hexdigest()
