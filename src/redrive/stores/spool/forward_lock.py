"""
The lock that makes one process the forwarder of a spool.

Owns a file beside the spool and the kernel's lock on it, which ends with its process. Knows no letters.
"""

from __future__ import annotations

import fcntl
import os


class ForwardLock:
    """One forwarder at a time for each spool file, over all processes and all stores of a process."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-forwarder"
        self._descriptor = -1
        self._pid = 0

    def take(self) -> bool:
        """Say whether this one forwards now; it keeps the lock until `release`."""
        if self._descriptor >= 0 and self._pid == os.getpid():
            return True
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor, self._pid = descriptor, os.getpid()
        return True

    def release(self) -> None:
        """Let another one forward."""
        if self._descriptor >= 0 and self._pid == os.getpid():
            os.close(self._descriptor)
        self._descriptor = -1
