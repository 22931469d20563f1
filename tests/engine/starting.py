"""Letters, and starting them on an engine: what the engines' tests share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redrive.core.letter import Letter

if TYPE_CHECKING:
    from redrive.core.decide import Outcome
    from redrive.engine.execution import Engine
    from redrive.engine.handler import Handler

PATIENCE = 120.0  # seconds; only a broken build waits so long


def letter(payload: bytes = b'{"order": 17}', **fields: Any) -> Letter:
    return Letter(id="a", queue="default", kind="order", payload=payload, **fields)


def begin(engine: Engine, handler: Handler, one: Letter | None = None) -> asyncio.Future[Outcome]:
    """Start a letter; a second outcome for it would raise InvalidStateError."""
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    engine.start(handler, one or letter(), future, lambda ticket, outcome: ticket.set_result(outcome))
    return future


async def run(engine: Engine, handler: Handler, one: Letter | None = None) -> Outcome:
    return await soon(begin(engine, handler, one))


async def soon(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, PATIENCE)
