"""
A request's body, read within bounds.

Owns the limits on bytes and time: of one body, and of all bodies that arrive at one time. Knows no signature.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any, Self

from redrive.sources.webhook.receiving.answers import BUSY, HEADERS_TOO_LARGE, TOO_LARGE, TOO_SLOW, Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence

    from redrive.sources.webhook.config import InboxConfig

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


_DIGITS = 12  # of a length: more than any limit has


class Gone(Exception):
    """The sender closed the connection: there is nothing to keep and no one to answer."""


class Bodies:
    """Reads bodies; counts the bytes of those that still arrive."""

    def __init__(self, config: InboxConfig) -> None:
        self._config = config
        self.held = 0  # bytes of bodies that are being read or handled

    def refuse(self, headers: Sequence[tuple[bytes, bytes]], length: float, limit: int) -> Answer | None:
        """Return the answer to headers that say enough, before a byte of the body, of *length* bytes, is read."""
        if len(headers) > self._config.max_header_count or _size(headers) > self._config.max_headers:
            return HEADERS_TOO_LARGE
        return TOO_LARGE if length > limit else None

    async def read(self, receive: Receive, limit: int, room: Room, *, is_timed: bool = False) -> bytes | Answer:
        """
        Return the body, or the answer to one that is too large or too slow; raise Gone if the sender left.

        With *is_timed* the server has a deadline of its own, and a second timer for each request is saved.
        """
        if is_timed:
            return await self._read(receive, limit, room)
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
            if self.are_too_many:
                return BUSY
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def are_too_many(self) -> bool:
        """Whether the bodies that arrive at this time are larger together than they may be."""
        return self.held > self._config.max_receiving

    def room(self) -> Room:
        """Return what counts the bytes of one request, and gives them back at the end."""
        return Room(self)


def _size(headers: Sequence[tuple[bytes, bytes]]) -> int:
    total = 0
    for name, value in headers:
        total += len(name) + len(value)
    return total


def announced(headers: Sequence[tuple[bytes, bytes]]) -> float:
    """Return how many bytes the first content-length says; none without one, and endless if it is no number."""
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) <= _DIGITS else inf
    return 0


class Room:
    """The bytes that one request holds, in a `with` block."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies, self.taken = bodies, 0

    def __enter__(self) -> Self:
        """Begin with none."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Give them back."""
        self.give_back()

    def give_back(self) -> None:
        """Count none of its bytes any more."""
        self._bodies.held -= self.taken
        self.taken = 0

    def take(self, count: int) -> None:
        """Count *count* bytes more."""
        self.taken += count
        self._bodies.held += count
