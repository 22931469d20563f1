"""
A wire between client and server that can be cut.

Owns three faults: an answer that is lost (the server did it, nobody heard of it), a cut before any one
message of the protocol, in whichever direction, and a wire that is dead without saying so.
"""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import urlsplit


class Proxy:
    """Passes everything on, until it is told otherwise."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._url = parts
        self._lose = self._cut = -1
        self.cuts = 0
        self._tasks: set[asyncio.Task] = set()
        self._dead: set[asyncio.Task] = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return self._url._replace(netloc=f"postgres@127.0.0.1:{port}", query="sslmode=disable").geturl()

    def lose_answer(self, after: int = 0) -> None:
        """Let *after* answers through, then lose one and hang up."""
        self._lose = after

    def cut_before(self, message: int) -> None:
        """Let so many messages through, both directions counted, then hang up instead of passing on the next."""
        self._cut = message

    def blackhole(self) -> None:
        """Swallow everything on the connections that are open now; nobody is told."""
        self._dead |= self._tasks

    async def _serve(self, reader, writer) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        try:
            await asyncio.gather(
                self._pass(reader, far_writer, task, asks=True), self._pass(far_reader, writer, task, asks=False)
            )
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, far_writer):
                end.transport.abort()
                with contextlib.suppress(ConnectionError):
                    await end.wait_closed()
            self._tasks.discard(task)

    async def _pass(self, reader, writer, task, *, asks: bool) -> None:
        messages = Messages(begins_bare=asks)
        while data := await reader.read(65_536):
            if task in self._dead:
                continue
            if not asks and self._lose >= 0:
                self._lose -= 1
                if self._lose < 0:
                    self._hang_up()
            for message in messages.of(data):
                self._count()
                writer.write(message)
            await writer.drain()
        raise ConnectionError

    def _count(self) -> None:
        if self._cut >= 0:
            self._cut -= 1
            if self._cut < 0:
                self._hang_up()

    def _hang_up(self) -> None:
        self.cuts += 1
        raise ConnectionError


class Messages:
    """Splits a stream where the protocol's messages begin: one byte of type, four of length; the first has no type."""

    def __init__(self, *, begins_bare: bool) -> None:
        self._bare, self._rest = begins_bare, b""

    def of(self, data: bytes) -> list[bytes]:
        """Return the messages that are whole by now."""
        self._rest += data
        found = []
        while len(self._rest) >= 5:
            start = 0 if self._bare else 1
            size = start + int.from_bytes(self._rest[start : start + 4], "big")
            if len(self._rest) < size:
                break
            found.append(self._rest[:size])
            self._rest, self._bare = self._rest[size:], False
        return found
