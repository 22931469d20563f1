"""
Waking workers after a user's commit.

Owns a thread with one connection that sends few notices, in the background: for the code that committed, `tell` costs
nothing and cannot fail. The first notice starts the thread, in each process. A notice only saves time: a worker that
hears none looks again after its poll interval.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

from redrive.stores.postgres.user_transactions import Notifier

_REST = 0.02  # seconds between two notices


class Waker:
    """Tells workers, by way of the server at *dsn*, that there may be work."""

    def __init__(self, dsn: str, *, pooled: bool = False) -> None:
        self._dsn, self._pooled = dsn, pooled
        self._made_by = 0
        self._news = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(self) -> None:
        """Tell, soon; any thread may call it, also after a fork."""
        if self._made_by != os.getpid():
            self._made_by = os.getpid()
            self._news, self._ended = threading.Event(), threading.Event()
            self._thread = threading.Thread(target=self._run, name="redrive-waker", daemon=True)
            self._thread.start()
        self._news.set()

    def close(self) -> None:
        """End the thread; the next notice begins another."""
        if self._made_by == os.getpid() and self._thread is not None:
            self._made_by = 0
            self._ended.set()
            self._news.set()
            self._thread.join(5)

    def _run(self) -> None:
        news, ended = self._news, self._ended
        with asyncio.Runner() as loop:
            notifier = Notifier(self._dsn, pooled=self._pooled)
            while news.wait() and not ended.is_set():
                news.clear()
                with contextlib.suppress(Exception):  # no worker is woken: they poll
                    loop.run(notifier.notify())
                ended.wait(_REST)
            loop.run(notifier.close())
