"""The embedded store: one SQLite file, several processes, one writer thread in each."""

from redrive.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
