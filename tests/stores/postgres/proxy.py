"""A wire between client and server that can be cut when an answer comes back: the server did it, nobody heard of it."""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import urlsplit


class Proxy:
    """Passes everything on, until it is told to lose the next answers."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._url = parts
        self._lose = -1
        self.cuts = 0
        self._tasks: set[asyncio.Task] = set()

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
        return self._url._replace(netloc=f"postgres@127.0.0.1:{port}").geturl()

    def lose_answer(self, after: int = 0) -> None:
        """Let *after* answers through, then lose one and hang up."""
        self._lose = after

    async def _serve(self, reader, writer) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        try:
            await asyncio.gather(self._pass(reader, far_writer), self._answer(far_reader, writer))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, far_writer):
                end.close()
                with contextlib.suppress(ConnectionError):
                    await end.wait_closed()
            self._tasks.discard(task)

    async def _pass(self, reader, writer) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        raise ConnectionError

    async def _answer(self, reader, writer) -> None:
        while data := await reader.read(65_536):
            if self._lose == 0:
                self._lose = -1
                self.cuts += 1
                raise ConnectionError
            self._lose -= self._lose > 0
            writer.write(data)
            await writer.drain()
        raise ConnectionError
