"""A real inbox on loopback, in the test's own event loop, and raw connections to it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from redrive.sources.webhook.serving.server import listen, name_of, serve


@asynccontextmanager
async def running(inbox):
    """Serve *inbox*; give its public and its admin address."""
    stop = asyncio.Event()
    public, admin = listen("127.0.0.1:0"), listen("127.0.0.1:0")
    names = name_of(public), name_of(admin)
    task = asyncio.create_task(serve(inbox, public, admin, stop))
    try:
        yield names
    finally:
        stop.set()
        await task


async def talk(address: str, *parts: bytes, patience: float = 10.0) -> bytes:
    """Send *parts*, then return all that comes back until the other side closes."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), patience)
    except ConnectionError:  # it closed while we still wrote
        return b""
    finally:
        writer.close()


def request(path: str, body: bytes = b"", *headers: str, method: str = "POST") -> bytes:
    """Return a request that asks to close the connection afterwards."""
    lines = [f"{method} {path} HTTP/1.1", "Host: inbox", "Connection: close", *headers]
    if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


async def until(holds) -> None:
    """Return once *holds* does; the event loop goes on meanwhile."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
