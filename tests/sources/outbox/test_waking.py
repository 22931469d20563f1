"""Whoever wakes workers is in nobody's way, also when the server is away."""

from __future__ import annotations

import asyncio

from redrive import Redrive
from redrive.stores.postgres import PostgresStore


async def test_closing_keeps_the_loop_free_while_the_server_is_away():
    connected = asyncio.Event()

    async def silent(_reader, writer):
        connected.set()
        await closing_begun.wait()
        writer.close()

    closing_begun = asyncio.Event()
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        app = Redrive("memory://", store=PostgresStore(f"postgresql://127.0.0.1:{port}/x"))
        app._outbox_users()._waker.tell()
        await connected.wait()  # the thread now waits for an answer
        closing = asyncio.ensure_future(app.close())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not closing.done()
        closing_begun.set()
        await closing
