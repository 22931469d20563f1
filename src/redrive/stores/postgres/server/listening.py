"""
Waking others, and being woken.

Owns the connection that listens, and the notices that are sent: outside every transaction that
moves letters, and few, because notices share one lock of the whole server. Both only save
time: a worker that gets no notification polls again after its own interval.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Any

from redrive.core.policy import RetryPolicy
from redrive.errors import RedriveError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.stores.postgres.server.connections import Server

CHANNEL = "outbox_default"
_REST = 0.02  # seconds between two notices of one process
_ASK_AFTER, _ANSWER_WITHIN = 15.0, 5.0  # seconds: a line may be dead without saying so
_PAUSES = RetryPolicy.exponential(0.1, 30.0, jitter="none")  # until a lost connection is made again


class Wire:
    """This process's end of the line."""

    def __init__(self, server: Server, notify: str, ring: Callable[[], None], *, direct: Server | None) -> None:
        """*direct* gives the connection that listens, past any pooler; None: this store does not listen."""
        self._server, self._notify, self._ring, self._direct = server, notify, ring, direct
        self._name = secrets.token_hex(8)
        self._news = asyncio.Event()
        self.listening = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Begin to listen, and be ready to send."""
        self._news, self.listening = asyncio.Event(), asyncio.Event()
        self._tasks = [asyncio.create_task(self._send())]
        if self._direct is not None:
            self._tasks.append(asyncio.create_task(self._hear(self._direct)))

    async def close(self) -> None:
        """Hang up."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def tell(self) -> None:
        """Notify all workers, soon, that there may be work."""
        self._ring()
        self._news.set()

    async def _send(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            with contextlib.suppress(RedriveError):  # workers are not woken; they poll
                await self._server.ask(self._send_one)
            await asyncio.sleep(_REST)

    async def _send_one(self, connection: Any, _again: bool) -> None:  # noqa: FBT001 - every work is called like this
        async with self._server.in_own_transaction(connection):
            await connection.execute(self._notify, CHANNEL, self._name)

    async def _hear(self, direct: Server) -> None:
        failures = 0
        while True:
            failures += 1
            with contextlib.suppress(Exception):  # any error: the next try may succeed
                await self._listen_once(direct)
                failures = 1
            await asyncio.sleep(_PAUSES.delay(failures, 0.0))

    async def _listen_once(self, direct: Server) -> None:
        """Listen until the connection is lost."""
        connection = await direct.connect()
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._heard)
            self.listening.set()
            self._ring()  # notices sent before this moment were missed
            while not lost.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(lost.wait(), _ASK_AFTER)
                    return
                await connection.fetchval("SELECT 1", timeout=_ANSWER_WITHIN)
        finally:
            self.listening.clear()
            with contextlib.suppress(Exception):
                await connection.close(timeout=1)

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload != self._name:
            self._ring()
