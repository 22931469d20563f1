"""Whoever wakes workers is in nobody's way, also when the server is away."""

from __future__ import annotations

import asyncio

from redrive import Redrive
from redrive.stores.postgres import PostgresStore


async def test_closing_keeps_the_loop_free_while_the_server_is_away(monkeypatch):
    monkeypatch.setattr("redrive.stores.postgres.server.connections.PATIENCE", 0.5)
    app = Redrive("memory://", store=PostgresStore("postgresql://127.0.0.1:1/x"))
    app._outbox_users()._waker.tell()
    closing = asyncio.ensure_future(app.close())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    await closing
