"""
Whether the files at the path are still those that were opened.

Owns the comparison that stands between a commit and its confirmation, and the error when it
fails. A connection goes on writing into a file that was removed or replaced, and notices nothing.
Opens nothing itself.
"""

from __future__ import annotations

import os

from redrive.errors import StoreUnavailable
from redrive.stores.sqlite.file.locks import identity_of

UNSURE = "nothing was acknowledged, but it may have been kept: try again with the same id or idempotency key"


class FileLost(StoreUnavailable):
    """The file that was opened is no longer the one at its path; what was under way may have been kept, or not."""


class OpenedFiles:
    """A database file, its `-wal` and its `-shm`, as they were when they were opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        real = os.path.realpath(path)  # SQLite keeps the others next to the file that a link leads to
        self.wal, self.shm = f"{real}-wal", f"{real}-shm"
        self._database = identity_of(path)
        self._wal, self._shm = identity_of(self.wal), identity_of(self.shm)

    def check(self) -> None:
        """Raise FileLost unless all three are in their place."""
        if (
            identity_of(self.wal) != self._wal
            or identity_of(self._path) != self._database
            or identity_of(self.shm) != self._shm
        ):
            raise FileLost(self._reason())

    def holds_all(self, *, guarded: bool) -> bool:
        """
        Whether the database misses nothing but the WAL that we have open: it was removed, and no process wrote since.

        A process that opens the file makes a new WAL. When it closes the file, it removes that WAL and the `-shm`, but
        not while the file is *guarded*.
        """
        return (
            identity_of(self._path) == self._database
            and identity_of(self.wal) is None
            and (guarded or identity_of(self.shm) == self._shm)
        )

    def _reason(self) -> str:
        now = identity_of(self._path)
        if now is None:
            return missing(self._path)
        if now != self._database:
            return (
                f"cannot use {self._path!r}: another file was put in its place while it was in use; {UNSURE}. "
                "This process goes on with the file that is there now; "
                f"if the old {self.wal!r} lies beside it, move that and the -shm file away"
            )
        return (
            f"cannot use {self._path!r}: its -wal or -shm file was removed or replaced while it was in use, by hand "
            f"or by a second SQLite library in this process; {UNSURE}. "
            "Look at the file from another process, or by a file:…?mode=ro URI"
        )


def missing(path: str) -> str:
    """Say that there is no file any more."""
    return (
        f"cannot use {path!r}: the file was removed or moved away while it was in use; "
        f"put it back, or restart this process to begin with an empty one; {UNSURE}"
    )
