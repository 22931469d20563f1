"""
The lock that makes one process the forwarder of a spool.

Owns a file next to the spool and the kernel's lock on it, which ends with its process. Knows no letters.
A system without `fcntl`, such as Windows, has no such lock: there it holds among the stores of one process only.
"""

from __future__ import annotations

import os
import sys

if sys.platform != "win32":
    import fcntl

_held_here: set[str] = set()  # where there is no `fcntl`: the paths that a store of this process holds


class ForwardLock:
    """One forwarder at a time for each spool file, over all processes and all stores of a process."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-forwarder"
        self._descriptor = -1
        self._pid = 0

    def take(self) -> bool:
        """Say whether this one forwards now; it keeps the lock until `unlock`."""
        if self._descriptor >= 0 and self._pid == os.getpid():
            return True
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        if not _lock(self._path, descriptor):
            os.close(descriptor)
            return False
        self._descriptor, self._pid = descriptor, os.getpid()
        return True

    def unlock(self) -> None:
        """Let another one forward."""
        if self._descriptor >= 0 and self._pid == os.getpid():
            os.close(self._descriptor)
            _held_here.discard(self._path)
        self._descriptor = -1


def _lock(path: str, descriptor: int) -> bool:
    """Lock the file at *path*, unless another store holds it."""
    if sys.platform == "win32":
        free = path not in _held_here
        _held_here.add(path)
        return free
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
