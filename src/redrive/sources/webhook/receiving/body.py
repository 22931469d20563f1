"""
A request's body, read within bounds.

Owns the limits on bytes and time: of one body, and of all bodies that arrive at one time. Knows no signature.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from redrive.sources.webhook.receiving.answers import BUSY, HEADERS_TOO_LARGE, TOO_LARGE, TOO_SLOW, Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence

    from redrive.sources.webhook.config import InboxConfig

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Gone(Exception):
    """The sender closed the connection: there is nothing to keep and no one to answer."""


class Bodies:
    """Reads bodies; counts the bytes of those that still arrive."""

    def __init__(self, config: InboxConfig) -> None:
        self._config = config
        self.held = 0  # bytes of bodies that are being read or handled

    def refuse(self, headers: Sequence[tuple[bytes, bytes]], limit: int) -> Answer | None:
        """Return the answer to headers that say enough, before a byte of the body is read."""
        total = sum(len(name) + len(value) for name, value in headers)
        if len(headers) > self._config.max_header_count or total > self._config.max_headers:
            return HEADERS_TOO_LARGE
        announced = next((value for name, value in headers if name == b"content-length"), b"0")
        return TOO_LARGE if not announced.isdigit() or len(announced) > 12 or int(announced) > limit else None  # noqa: PLR2004 - digits

    async def read(self, receive: Receive, limit: int, room: Room) -> bytes | Answer:
        """Return the body, or the answer to one that is too large or too slow; raise Gone if the sender left."""
        try:
            async with asyncio.timeout(self._config.receive_seconds):
                return await self._read(receive, limit, room)
        except TimeoutError:
            return TOO_SLOW

    async def _read(self, receive: Receive, limit: int, room: Room) -> bytes | Answer:
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            part = message.get("body", b"")
            parts.append(part)
            room.take(len(part))
            if room.taken > limit:
                return TOO_LARGE
            if self.held > self._config.max_receiving:
                return BUSY
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    @contextmanager
    def room(self) -> Iterator[Room]:
        """Give what counts the bytes of one request, and give them back at the end."""
        room = Room(self)
        try:
            yield room
        finally:
            self.held -= room.taken


class Room:
    """The bytes that one request holds."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies, self.taken = bodies, 0

    def take(self, count: int) -> None:
        """Count *count* bytes more."""
        self.taken += count
        self._bodies.held += count
