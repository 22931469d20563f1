"""
The statements of the SQLite store, a file for each module that sends them.

Owns how they are read: once, when the module is imported. Knows no statement's purpose.
"""

from __future__ import annotations

from redrive.stores import sql_files


def statements(job: str, **pieces: str) -> dict[str, str]:
    """Return the statements of `<job>.sql` by their names; *pieces* are columns that stand as `{name}` in them."""
    return sql_files.named(__name__, f"{job}.sql", pieces)
