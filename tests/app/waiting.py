"""Waiting for what a real worker does by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.engine.starting import soon

if TYPE_CHECKING:
    from collections.abc import Callable


async def until(holds: Callable[[], object]) -> None:
    """Return once *holds* does; raise TimeoutError if it takes far too long."""

    async def look() -> None:
        while not holds():  # noqa: ASYNC110 - what it looks at belongs to the code under test, which sets no event
            await asyncio.sleep(0.001)

    await soon(look())
