"""
How a worker hears that there may be work.

Owns the waiting and waking, across event loops and threads. Knows no letter.
"""

from __future__ import annotations

import asyncio
import contextlib
from threading import Lock


class Wakeup:
    """Wakes every waiting caller; if none waits, the next call of `wait` returns at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._unheard = False
        self._waiters: set[asyncio.Future[None]] = set()

    def send(self) -> None:
        """Wake every waiting caller; may be called from any thread."""
        with self._lock:
            waiters, self._waiters = self._waiters, set()
            self._unheard = not waiters
        for waiter in waiters:
            _wake(waiter)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the wait itself is the operation
        """Return True when one is sent, or False after *timeout* seconds."""
        waiter = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._unheard:
                self._unheard = False
                return True
            self._waiters.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=timeout)
        finally:
            with self._lock:
                woken = waiter not in self._waiters  # perhaps only just now, and the loop has not run its callback yet
                self._waiters.discard(waiter)
        return woken


def _wake(waiter: asyncio.Future[None]) -> None:
    with contextlib.suppress(RuntimeError):  # that loop was closed: none of its callers waits any more
        waiter.get_loop().call_soon_threadsafe(_finish, waiter)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
