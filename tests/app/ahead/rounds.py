"""Rounds of a worker, step by step: what the tests of letters claimed ahead share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive import Redrive
    from redrive.testing import Drive


async def orders(app: Redrive, count: int, **options) -> None:
    await app.enqueue_many([app.draft("order.created", {"n": n}, **options) for n in range(count)])


async def ticks(test: Drive, count: int) -> None:
    for _ in range(count):
        await test.processor.tick()


async def turns(count: int = 20) -> None:
    """Let other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


def ready(test: Drive) -> int:
    return sum(len(slots.ahead.ready) for slots in test.capacity.all)
