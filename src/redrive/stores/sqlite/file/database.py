"""
The database file: opening connections, settings that durability depends on, migrations.

Owns every PRAGMA and the schema's version. Knows no letters.
"""

from __future__ import annotations

import time
from importlib import resources
from itertools import count
from typing import TYPE_CHECKING

import apsw

from redrive.errors import SchemaMismatch, StoreDamaged, StoreError, StoreUnavailable
from redrive.stores.sqlite.file.identity import UNSURE

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION_ID = 0x72656472  # "redr"
_MOMENT, _PATIENCE = 0.001, 4.5  # seconds
OLDEST_SAFE = 3_051_003  # before 3.51.3 two writers could corrupt a WAL file


class File:
    """One database file and how to connect to it."""

    def __init__(self, path: str | Path, *, vfs: str | None = None) -> None:
        self.path = str(path)
        self._vfs = vfs

    def writer(self) -> apsw.Connection:
        """Open the one connection of this process that writes."""
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        _write_ahead(connection)
        connection.pragma("synchronous", "full")  # P1: a commit that returned survives a power cut
        connection.pragma("wal_autocheckpoint", 0)  # the writer thread checkpoints between its transactions
        connection.pragma("journal_size_limit", 64 * 1024 * 1024)
        return connection

    def reader(self) -> apsw.Connection:
        """Open a connection that cannot write."""
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
        connection.pragma("query_only", 1)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # that is for the one that writes
        return connection

    def _connect(self, flags: int) -> apsw.Connection:
        connection = apsw.Connection(self.path, flags=flags, vfs=self._vfs)
        connection.set_busy_handler(ask_again)
        connection.pragma("cache_size", -65_536)
        connection.pragma("temp_store", "memory")
        connection.pragma("trusted_schema", 0)
        connection.pragma("mmap_size", 0)
        return connection


def _write_ahead(connection: apsw.Connection) -> None:
    """Keep a WAL; of two that open a new file at once SQLite tells one that it is busy without asking its handler."""
    for asked in count():
        try:
            connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if not ask_again(asked):
                raise
        else:
            return


def ask_again(asked: int) -> bool:
    """
    Wait a moment for a lock that another process holds; False gives up after about five seconds.

    SQLite's own handler waits longer each time, up to 100 ms, so that a process which comes late
    would meet the lock taken again and again, for seconds.
    """
    time.sleep(_MOMENT)
    return asked * _MOMENT < _PATIENCE


def migrations() -> list[tuple[int, str]]:
    """Return the numbered SQL files, oldest first."""
    folder = resources.files("redrive.stores.sqlite") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [(int(file.name.split("_")[0]), file.read_text()) for file in files]


def migrate(connection: apsw.Connection, path: str) -> int:
    """Bring the schema up to date, one transaction in all; return its version."""
    if apsw.SQLITE_VERSION_NUMBER < OLDEST_SAFE:
        raise StoreError(_too_old())
    newest = migrations()[-1][0]
    with immediately(connection):
        found = schema_version(connection)
        _refuse_strangers(connection, path, found, newest)
        for number, script in migrations():
            if number > found:
                connection.execute(script)
                connection.pragma("user_version", number)
        connection.pragma("application_id", APPLICATION_ID)
    return newest


def schema_version(connection: apsw.Connection) -> int:
    """Return the schema's number; 0 is an empty file."""
    return int(connection.pragma("user_version"))


def _refuse_strangers(connection: apsw.Connection, path: str, found: int, newest: int) -> None:
    if found > newest:
        message = (
            f"{path!r} has schema {found}, made by a newer redrive, and this version knows {newest}; "
            "upgrade redrive (the letters are untouched)"
        )
        raise SchemaMismatch(message)
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if tables and connection.pragma("application_id") != APPLICATION_ID:
        message = f"{path!r} is a SQLite database of another application; give redrive a file of its own"
        raise StoreDamaged(message)


class immediately:  # noqa: N801 - reads as a statement: with immediately(connection)
    """A write transaction that is rolled back on any error."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._connection.execute("COMMIT" if kind is None else "ROLLBACK")


def _too_old() -> str:
    return (
        f"SQLite {apsw.sqlite_lib_version()} can corrupt a file that several processes write "
        "(fixed in 3.51.3); install a newer apsw"
    )


def explain_error(error: apsw.Error, path: str) -> StoreError:
    """Turn what SQLite said into what the caller can do about it."""
    for kinds, raised, sentence in _EXPLAINED:
        if isinstance(error, kinds):
            return raised(sentence.format(path=repr(path), error=error))
    return StoreUnavailable(f"cannot use {path!r}: {error}; {UNSURE}")


_EXPLAINED: list[tuple[type[apsw.Error] | tuple[type[apsw.Error], ...], type[StoreError], str]] = [
    (
        apsw.FullError,
        StoreUnavailable,
        "cannot write to {path}: no space left; nothing was written, free some and try again",
    ),
    (
        apsw.BusyError,
        StoreUnavailable,
        "cannot write to {path}: another process kept it locked; nothing was written, try again",
    ),
    (
        (apsw.NotADBError, apsw.CorruptError),
        StoreDamaged,
        "{path} is not a sound SQLite database ({error}); restore it from a backup",
    ),
    (
        apsw.CantOpenError,
        StoreUnavailable,
        "cannot open {path}: check that its folder exists and may be written",
    ),
    (
        apsw.ReadOnlyError,
        StoreUnavailable,
        "cannot write to {path}: it is read-only for this user; check its permissions",
    ),
    (
        (apsw.ConstraintError, apsw.MismatchError),
        StoreError,
        "{path} refused what redrive asked ({error}); nothing was written",
    ),
    (
        apsw.TooBigError,
        StoreError,
        "cannot keep a letter in {path}: it is larger than SQLite takes; send a reference to its content instead",
    ),
]
