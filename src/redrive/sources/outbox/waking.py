"""
Waking workers after somebody else's commit.

Owns a thread with one connection that sends notices, few, and never in the way of the code that
committed: telling costs that code nothing and cannot fail. Begun by the first notice, in each
process anew. Only spares time: a worker that hears nothing looks again after its poll interval.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from typing import Any

from redrive.stores.postgres.server.connections import Server
from redrive.stores.postgres.server.listening import CHANNEL

_REST = 0.02  # seconds between two notices
_NOTIFY = f"NOTIFY {CHANNEL}"  # without parameters it is one message: behind a pooler, two may reach two servers


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
            server = Server(self._dsn, size=1, pooled=self._pooled)
            while news.wait() and not ended.is_set():
                news.clear()
                with contextlib.suppress(Exception):  # nobody is woken: they poll
                    loop.run(_send_by(server))
                ended.wait(_REST)
            loop.run(server.close())


async def _send_by(server: Server) -> None:
    if server.closed:
        await server.open()
    await server.ask(_send)


async def _send(connection: Any, _again: bool) -> None:  # noqa: FBT001 - every work is called like this
    await connection.execute(_NOTIFY)
