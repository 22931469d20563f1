"""A destination of forwards: a real server on loopback that keeps what it got and answers what it was told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import NamedTuple


class Got(NamedTuple):
    head: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name):
        return next((value for key, value in self.headers if key.lower() == name), None)


class Destination:
    def __init__(self):
        self.got, self.answers, self.port = [], [], 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/hooks"

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").strip().split("\r\n")
                headers = [tuple(line.split(": ", 1)) for line in lines]
                length = int(next(value for key, value in headers if key.lower() == "content-length"))
                self.got.append(Got(first, headers, await reader.readexactly(length)))
                writer.write((self.answers.pop(0) if self.answers else answer(200)).encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def answer(status, *headers):
    return "\r\n".join([f"HTTP/1.1 {status} X", "Content-Length: 0", *headers, "", ""])


@asynccontextmanager
async def destination():
    made = Destination()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
