"""
redrive on SQLite: enqueue and drain, as a user runs them.

Owns the cases that run in processes of their own. Default settings, the real worker, full
semantics; after each, every letter is accounted for and the books balance.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import apsw

from benchmarks import sqlite_raw
from benchmarks.fresh import measure, new_folder
from benchmarks.letters import KIND, Marks, check_lines, in_batches, payloads, resident
from benchmarks.sqlite_peers import SYNC
from redrive import Redrive

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from redrive import Draft
    from redrive.engine.handler import EngineName

LINES = "BENCH_LINES"  # where handlers in child processes note what they handled


def app_on(folder: Path) -> Redrive:
    """Return an application on the file in *folder*, with default settings."""
    return Redrive(f"sqlite:///{folder / 'redrive.db'}")


# ---------------------------------------------------------------------- enqueue


def enqueue(folder: Path, n: int, producers: int) -> dict[str, Any]:
    """*producers* concurrent ones, each awaiting the durability of each letter."""
    return asyncio.run(_enqueue(folder, n, partial(_each_awaits, producers=producers)))


def enqueue_many(folder: Path, n: int, batch: int) -> dict[str, Any]:
    """One producer, *batch* letters a transaction."""
    return asyncio.run(_enqueue(folder, n, partial(_in_batches, batch=batch)))


async def _enqueue(folder: Path, n: int, put: Callable[..., Awaitable[list[str]]]) -> dict[str, Any]:
    bodies = payloads(n)
    async with app_on(folder) as app:
        start = time.perf_counter()
        ids = await put(app, bodies)
        seconds = time.perf_counter() - start
        await _check(app, n, pending=n)
    assert len(ids) == len(set(ids)) == n
    return {"n": n, "seconds": seconds, **_level(folder)}


async def _each_awaits(app: Redrive, bodies: list[dict[str, Any]], producers: int) -> list[str]:
    async def produce(first: int) -> list[str]:
        return [(await app.enqueue(KIND, body)).id for body in bodies[first::producers]]

    return list(itertools.chain(*await asyncio.gather(*map(produce, range(producers)))))


async def _in_batches(app: Redrive, bodies: list[dict[str, Any]], batch: int) -> list[str]:
    ids = []
    for some in in_batches(bodies, batch):
        ids += [receipt.id for receipt in await app.enqueue_many([app.draft(KIND, body) for body in some])]
    return ids


# ---------------------------------------------------------------------- drain


def drain_new_file(n: int, engine: EngineName = "async", *, samples: bool = False) -> dict[str, Any]:
    """Fill a file in one process and drain it in another."""
    with new_folder() as folder:
        measure(fill, folder, n=n)
        return measure(drain, folder, n=n, engine=engine, samples=samples)


def drain_by_hand(n: int, batch: int) -> dict[str, Any]:
    """Fill a file as for our own drain, and drain it by a loop on the driver."""
    with new_folder() as folder:
        measure(fill, folder, n=n)
        return measure(sqlite_raw.same_writes, folder, n=n, batch=batch)


def fill(folder: Path, n: int) -> dict[str, Any]:
    """Put *n* letters that wait to be handled."""

    async def put() -> None:
        async with app_on(folder) as app:
            for start in range(0, n, 5_000):
                await app.enqueue_many(_drafts(app, start, min(5_000, n - start)))

    asyncio.run(put())
    return {"n": n}


def _drafts(app: Redrive, start: int, n: int) -> list[Draft]:
    return [app.draft(KIND, body) for body in payloads(n, start)]


def drain(folder: Path, n: int, engine: EngineName, *, samples: bool = False) -> dict[str, Any]:
    """Handle the *n* letters of the filled file until nothing is left."""
    return asyncio.run(_drain(folder, n, engine, samples=samples))


async def _drain(folder: Path, n: int, engine: EngineName, *, samples: bool) -> dict[str, Any]:
    marks, lines = Marks(n), folder / "handled.txt"
    os.environ[LINES] = str(lines)
    app = app_on(folder)
    app.handler(KIND, engine=engine)(handler_for(engine, marks))
    async with app:
        before = (await app.desk.stats()).books
        watching = asyncio.ensure_future(_watch(marks)) if samples else None
        start = time.perf_counter()
        await app.run(until_idle=True)
        seconds = time.perf_counter() - start
        await _check(app, before["enqueued"], delivered=before["delivered"] + n)
    check_lines(lines, n) if engine == "process" else marks.check(n)
    return {"n": n, "seconds": seconds, "memory": await _end(watching), **_level(folder)}


def handler_for(engine: EngineName, marks: Marks) -> Callable[..., Any]:
    """Return a handler that does nothing but note that it ran."""
    counts = marks.counts

    async def handle(order: dict) -> None:  # type: ignore[type-arg]
        counts[order["i"]] += 1

    def handle_in_thread(order: dict) -> None:  # type: ignore[type-arg]
        counts[order["i"]] += 1

    by_engine: dict[str, Callable[..., Any]] = {"async": handle, "thread": handle_in_thread}
    return by_engine.get(engine, handle_in_process)


def handle_in_process(order: dict) -> None:  # type: ignore[type-arg]
    """Note, from another process, that it ran: one short append is atomic."""
    os.write(_lines_file(), b"%d\n" % order["i"])


_opened: list[int] = []


def _lines_file() -> int:
    if not _opened:
        _opened.append(os.open(os.environ[LINES], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    return _opened[0]


# ---------------------------------------------------------------------- evidence


async def _watch(marks: Marks) -> list[tuple[int, float]]:
    """Sample letters handled and memory until cancelled."""
    found: list[tuple[int, float]] = []
    try:
        while True:
            found.append((len(marks.counts) - marks.counts.count(0), resident()))
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        return found


async def _end(watching: asyncio.Task[list[tuple[int, float]]] | None) -> list[tuple[int, float]]:
    if watching is None:
        return []
    watching.cancel()
    return await watching


async def _check(app: Redrive, enqueued: int, **expected: int) -> None:
    """Stop unless the books balance and say what they should."""
    stats = await app.desk.stats()
    wanted = {"enqueued": enqueued, **expected}
    found = {name: stats.books[name] for name in wanted}
    assert stats.balanced, stats.books
    assert found == wanted, f"{stats.books} instead of {wanted}"


def _level(folder: Path) -> dict[str, str]:
    """Return the `synchronous` that the store's own writer runs with."""
    from redrive.stores.sqlite.file.database import File  # noqa: PLC0415 - only to look

    connection = File(folder / "redrive.db").writer()
    level = SYNC[int(connection.pragma("synchronous"))]
    connection.close()
    return {"synchronous": level, "sqlite": apsw.sqlite_lib_version()}
