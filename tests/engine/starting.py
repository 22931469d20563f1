"""Letters, and starting them on an engine: what the engines' tests share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

from redrive.core.letter import Letter
from redrive.engine.attempt import attempt_each

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redrive.core.decide import Outcome
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import Engine

PATIENCE = 120.0  # seconds; only a broken build waits so long


def letter(payload: bytes = b'{"order": 17}', **fields: Any) -> Letter:
    return Letter(id="a", queue="default", kind="order", payload=payload, **fields)


def begin(engine: Engine, handler: Handler, one: Letter | None = None) -> asyncio.Future[Outcome]:
    """Start a letter; a second outcome for it would raise InvalidStateError."""
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    engine.start(handler, one or letter(), future, lambda ticket, outcome: ticket.set_result(outcome))
    return future


async def attempt(handler: Handler, one: Letter) -> Outcome:
    """Run an async handler on one letter; return the outcome."""
    outcomes: list[Outcome] = []
    await attempt_each(SimpleNamespace(handler=handler, item=one), lambda _run, outcome: bool(outcomes.append(outcome)))
    [outcome] = outcomes
    return outcome


async def run(engine: Engine, handler: Handler, one: Letter | None = None) -> Outcome:
    return await soon(begin(engine, handler, one))


async def soon(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, PATIENCE)


async def comes_true(claim: Callable[[], object]) -> bool:
    """Ask another process's traces until *claim* is true of them; there is no event to wait for."""

    def ask() -> bool:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if claim():
                return True
            threading.Event().wait(0.01)
        return False

    return await asyncio.to_thread(ask)


async def opened(gate: Path) -> IO[str]:
    """Open a named pipe for writing as soon as somebody reads it; opening it at once might wait for ever."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if (pipe := opened_now(gate)) is not None:
                return pipe
            await asyncio.sleep(0.01)


def opened_now(gate: Path) -> IO[str] | None:
    """Open a named pipe for writing; return None if nobody reads it."""
    with contextlib.suppress(OSError):
        return os.fdopen(os.open(gate, os.O_WRONLY | os.O_NONBLOCK), "w")
    return None
