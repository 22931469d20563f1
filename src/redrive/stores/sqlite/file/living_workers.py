"""
Which workers of a database file live, by locks that the kernel drops when their process dies.

Owns a small file next to the database for each worker of this process, locked as long as the worker
lives. A process that finds such a file unlocked knows that its worker is dead, also in another container, where
process ids mean nothing. A worker that is stopped or slow keeps its lock. Where a file is missing or
cannot be locked nothing is known, and the lease decides. Knows no letters and no leases.

The locks are `flock`'s: they belong to an open file, not to a process, so several stores of one process
do not lift each other's, and SQLite's own locks on the database are not touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import threading
import weakref

if sys.platform != "win32":
    import fcntl

_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,100}")
_TRIES = 3  # a sweeper may remove the file between our open and our lock
_all_of_this_process: weakref.WeakSet[Living] = weakref.WeakSet()


class Living:
    """The locks of this store's own workers, and a look at those of other processes."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._held: dict[str, int | None] = {}  # by worker: the locked file; None where there can be none
        self._guard = threading.Lock()
        _all_of_this_process.add(self)

    def hold(self, worker: str) -> None:
        """Show that *worker* lives until it is let go of, or until this process ends."""
        if worker not in self._held:
            with self._guard:
                if worker not in self._held:
                    self._held[worker] = self._locked(worker)

    def let_go(self, worker: str, *, remove: bool) -> None:
        """Let go of *worker*; unless its file is removed as well, others see from it that the worker is dead."""
        with self._guard:
            file = self._held.pop(worker, None)
            if file is not None:
                if remove:
                    self._remove(worker)
                os.close(file)

    def let_go_of_all(self) -> None:
        """Let go of every worker that has not signed off: no worker will settle what it held."""
        for worker in tuple(self._held):
            self.let_go(worker, remove=False)

    def is_dead(self, worker: str) -> bool:
        """Whether *worker* is known to be dead; False also where nothing is known."""
        if worker in self._held:
            return False
        try:
            file = os.open(self._path(worker), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return _lock(file, exclusive=False)
        finally:
            os.close(file)

    def bury(self, worker: str) -> None:
        """Remove the file of *worker* if it is dead."""
        if self.is_dead(worker):
            self._remove(worker)

    def forget(self) -> None:
        """After a fork: close what is the parent's, without unlocking it, or a child would outlive it as its worker."""
        self._guard = threading.Lock()
        for file in self._held.values():
            if file is not None:
                os.close(file)
        self._held.clear()

    def _locked(self, worker: str) -> int | None:
        """Return the worker's file, made and locked; None if that cannot be, and the lease has to do."""
        for _ in range(_TRIES):
            with contextlib.suppress(OSError):
                file = self._made(worker)
                if _lock(file, exclusive=True) and os.fstat(file).st_nlink:
                    return file
                os.close(file)
        return None

    def _made(self, worker: str) -> int:
        """Make the file, for the same users as the database."""
        mode = os.stat(self._database).st_mode & 0o666  # noqa: PTH116 - one call, on text
        file = os.open(self._path(worker), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        with contextlib.suppress(OSError):  # another process's, from a worker of the same name
            os.fchmod(file, mode)
        return file

    def _remove(self, worker: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path(worker))  # noqa: PTH108 - one call, on text

    def _path(self, worker: str) -> str:
        plain = _PLAIN.fullmatch(worker)
        name = worker if plain else hashlib.sha256(worker.encode(errors="surrogatepass")).hexdigest()
        return f"{os.path.realpath(self._database)}-worker-{name}"  # as SQLite names its own files


def _lock(file: int, *, exclusive: bool) -> bool:
    """Lock *file* if no other process has; processes that only look do not disturb each other."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _after_a_fork() -> None:
    for living in tuple(_all_of_this_process):
        living.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_a_fork)
