"""
This process's hold on a database file: locks that SQLite's own cannot lose for us.

SQLite locks by `fcntl`, and a process loses all such locks on a file as soon as it closes any
descriptor of it. A second SQLite library in the process (the standard library's `sqlite3`) does
that when it closes a connection; then it, or any other process, believes the file unused, and
deletes the WAL under ours. Locks of an open file description (Linux) are not lost that way.

Owns one descriptor of the database and one of its `-shm` for each file that this process has
open, closed when no connection of ours is left, because closing them is what drops SQLite's locks:

- the bytes that a connection locks to say that the file is in use: no other process deletes the WAL;
- the byte of the `-shm` that says the same: no other process empties it;
- two bytes that SQLite leaves alone: the lock for writing, and the lock for checkpoints.

Where the system has no such locks, threads of this process still take turns, and `identity` notices
the loss. Knows no SQL.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import threading
from typing import TYPE_CHECKING

_SET_LOCK: int | None = None
_READ, _WRITE, _UNLOCK = 0, 1, 2
if sys.platform != "win32":  # there SQLite's own locks have to do
    import fcntl

    _SET_LOCK = getattr(fcntl, "F_OFD_SETLK", None)
    _READ, _WRITE, _UNLOCK = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Identity = tuple[int, int]  # device and inode

_SHARED = (0x40000002, 510)  # SQLite: a connection that reads locks these bytes of the database
_IN_USE = (128, 1)  # SQLite: every user of the -shm locks this byte of it
_TURN = (0x40000200, 1)  # ours, behind SQLite's
_CHECKPOINT = (0x40000201, 1)
_FLOCK = "hhqqi4x"  # Linux
_TAKE_TURN = struct.pack(_FLOCK, _WRITE, os.SEEK_SET, *_TURN, 0)  # made once: every commit needs both
_END_TURN = struct.pack(_FLOCK, _UNLOCK, os.SEEK_SET, *_TURN, 0)

_registry = threading.Lock()
_holds: dict[Identity, FileHold] = {}


class FileHold:
    """One database file, as all stores of this process hold it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.guarded = False  # by a lock that cannot be lost
        self.lost = False  # whether one of its stores found that the file, its -wal or its -shm is no longer there
        self._shm = -1
        self._users = 0
        self._writing = threading.Lock()  # the locks below are the process's: its threads take turns by this one

    @property
    def is_first(self) -> bool:
        """Whether no other store of this process holds the file."""
        return self._users == 1

    @property
    def identity(self) -> Identity:
        """Which file is held, even if it was moved since."""
        return _identity(os.fstat(self.descriptor))

    def guard(self, ask_again: Callable[[int], bool]) -> bool:
        """Say that the file is in use; it must be in WAL mode by now, which cannot be set any more."""
        asked = 0
        while not (taken := _lock(self.descriptor, _READ, _SHARED)) and ask_again(asked):
            asked += 1
        self.guarded = taken and _SET_LOCK is not None
        return taken

    def guard_shm(self, path: str) -> None:
        """Say that the `-shm` at *path* is in use."""
        self._forget_shm()
        with contextlib.suppress(OSError):
            self._shm = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            _lock(self._shm, _READ, _IN_USE)

    def take_write_lock(self, ask_again: Callable[[int], bool]) -> bool:
        """Take the lock for writing, before all other processes; False if *ask_again* gives up first."""
        asked = 0
        while not (taken := self._take_write_lock()) and ask_again(asked):
            asked += 1
        return taken

    def _take_write_lock(self) -> bool:
        if not self._writing.acquire(blocking=False):
            return False
        if _set(self.descriptor, _TAKE_TURN):
            return True
        self._writing.release()
        return False

    def drop_write_lock(self) -> None:
        """Let others write; only for the thread that took the lock."""
        _set(self.descriptor, _END_TURN)
        self._writing.release()

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[bool]:
        """Take the lock for checkpoints; False if another process has it."""
        taken = _lock(self.descriptor, _WRITE, _CHECKPOINT)
        try:
            yield taken
        finally:
            if taken:
                _lock(self.descriptor, _UNLOCK, _CHECKPOINT)

    def unguard(self) -> None:
        """Let the connection that is closed last see whether it is alone; if it is, it tidies up."""
        with _registry:
            if self._users == 1:
                _lock(self.descriptor, _UNLOCK, _SHARED)
                _lock(self._shm, _UNLOCK, _IN_USE)

    def close(self) -> None:
        """End this use of the file: its connections are closed."""
        with _registry:
            self._users -= 1
            if self._users == 0:
                self._close()

    def _close(self) -> None:
        for identity in [identity for identity, hold in _holds.items() if hold is self]:
            del _holds[identity]
        self._forget_shm()
        os.close(self.descriptor)
        self.descriptor = -1

    def _forget_shm(self) -> None:
        if self._shm >= 0:
            os.close(self._shm)
        self._shm = -1

    @staticmethod
    def now(path: str) -> FileHold | None:
        """Return this process's hold on the file at *path*, if it has one."""
        return _holds.get(identity_of(path) or (0, 0))

    @staticmethod
    def of(path: str, *, create: bool) -> FileHold:
        """Hold the file at *path*; raises OSError if there is none, or none can be made."""
        with _registry:
            hold = FileHold.now(path)  # never open one twice: closing the second drops locks
            if hold is None:
                hold = FileHold(_open(path, create=create))
                _holds[hold.identity] = hold
            hold._users += 1
            return hold


def identity_of(path: str) -> Identity | None:
    """Return which file is at *path*, None if there is none."""
    try:
        return _identity(os.stat(path))  # noqa: PTH116 - asked on every commit
    except OSError:
        return None


def shm_in_use(descriptor: int) -> bool:
    """Whether another process uses this `-shm`, so that SQLite would take over what stands in it."""
    if sys.platform == "win32" or _SET_LOCK is None:
        return False
    asked = struct.pack(_FLOCK, _WRITE, os.SEEK_SET, *_IN_USE, 0)
    return bool(struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[0] != _UNLOCK)


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def _open(path: str, *, create: bool) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
    except PermissionError:  # SQLite says later, and better, what it cannot do
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _lock(descriptor: int, kind: int, where: tuple[int, int]) -> bool:
    """Lock or unlock these bytes; False if another process has them. A system that cannot leaves it to SQLite."""
    return _set(descriptor, struct.pack(_FLOCK, kind, os.SEEK_SET, *where, 0))


def _set(descriptor: int, asked: bytes) -> bool:
    if sys.platform == "win32" or _SET_LOCK is None or descriptor < 0:
        return True
    try:
        fcntl.fcntl(descriptor, _SET_LOCK, asked)
    except (BlockingIOError, PermissionError):  # EAGAIN, EACCES
        return False
    except OSError:  # this file system has no such locks, or the file may only be read
        return True
    return True


def _after_fork() -> None:
    """In a child: the locks are the parent's, and stay so only if the child does not keep them open beyond its life."""
    global _registry  # noqa: PLW0603 - another thread of the parent may have held it
    _registry = threading.Lock()
    for hold in list(_holds.values()):
        hold._close()  # noqa: SLF001 - this module's own


os.register_at_fork(after_in_child=_after_fork)
