"""How a test knows that somebody has come to the lock that it holds: the moment in between is open until it lets go."""

from __future__ import annotations

import asyncio

_WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"


async def held_up_by(connection, task: asyncio.Task) -> None:
    """Wait until a backend waits for what *connection* has locked; *task*, which asked it to, must not end before."""
    async with asyncio.timeout(60):
        while not await connection.fetchval(_WAITING):
            assert not task.done(), task
            await asyncio.sleep(0.005)
