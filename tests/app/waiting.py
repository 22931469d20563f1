"""Watching what a real worker does by itself."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.engine.starting import soon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from redrive import Redrive


async def until(holds: Callable[[], object]) -> None:
    """Return once *holds* does; raise TimeoutError if it takes far too long."""

    async def look() -> None:
        while not holds():  # noqa: ASYNC110 - what it looks at belongs to the code under test, which sets no event
            await asyncio.sleep(0.001)

    await soon(look())


async def count(app: Redrive, query: str) -> int:
    """Return how many letters match *query*."""
    return len((await app.desk.ls(query, limit=500)).letters)


@asynccontextmanager
async def running(app: Redrive) -> AsyncIterator[asyncio.Future]:
    """Run *app* within the block."""
    task = asyncio.ensure_future(app.run())
    try:
        yield task
    finally:
        app.stop()
        await soon(task)
