"""Handlers that take their process with them, in every engine, and the worker that runs them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

from tests.torture.workload import quiet

from redrive import RetryPolicy
from redrive.app import Redrive
from redrive.stores.sqlite import SqliteStore


def abort() -> None:
    os.abort()


def segfault() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(3)


def killed() -> None:
    """What the kernel does to a process that took too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def out_of_memory() -> None:
    """What Python does where the limit is known: it raises, and nobody dies."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, hard))
    bytearray(64 << 30)


def endless_loop() -> None:
    while True:
        pass


POISONS = {each.__name__: each for each in (abort, segfault, leave, killed, out_of_memory, endless_loop)}


def in_process(payload: str) -> None:
    POISONS[payload]()


def in_thread(payload: str) -> None:
    POISONS[payload]()


async def in_task(payload: str) -> None:
    await asyncio.sleep(0)
    POISONS[payload]()


def neighbour_in_process(payload: int) -> None:
    time.sleep(0.005)


def neighbour_in_thread(payload: int) -> None:
    time.sleep(0.005)


async def neighbour_in_task(payload: int) -> None:
    await asyncio.sleep(0.005)


HANDLERS: dict[str, tuple[Any, Any]] = {
    "async": (in_task, neighbour_in_task),
    "thread": (in_thread, neighbour_in_thread),
    "process": (in_process, neighbour_in_process),
}


def build(folder: str | Path, engine: str) -> Redrive:
    """Return an application with a poisonous kind and an innocent one, both in *engine*."""
    store = SqliteStore(Path(folder) / "redrive.db")
    app = Redrive(  # the times are longer than a busy machine stalls: a worker that is only slow must lose nothing
        store=store, lease_seconds=4, sweep_seconds=0.1, poll_seconds=0.1, watchdog_seconds=5, concurrency=10
    )  # fmt: skip
    policy = RetryPolicy.exponential(first=0.02, cap=0.05, max_attempts=2)
    poison, neighbour = HANDLERS[engine]
    app.add_handler("poison", poison, policy=policy, engine=engine, timeout=3.0)
    app.add_handler("neighbour", neighbour, policy=policy, engine=engine)
    return app


def work(folder: str, engine: str) -> None:
    """Run a worker until nothing is left; the harness starts it again when it dies."""
    quiet()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what faulthandler says of a death that was asked for
    asyncio.run(_work(folder, engine))


async def _work(folder: str, engine: str) -> None:
    app = build(folder, engine)
    await app.run(until_idle=True, watchdog=True)
    await app.close()
