"""
Handlers that do real work: the cases, each run in a process of its own.

Owns how letters are filled in and drained by a handler that waits or fails, and the same work done by bare
lanes (asyncio tasks, or a thread pool) without a store. After each drain every letter is accounted for.
Knows neither sizes nor bars.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks.letters import KIND, Marks, in_batches, payload, payloads
from redrive import Redrive, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PUT_AT_ONCE = 5_000
_FAILING = 10  # every tenth letter, where letters fail


def fill(_folder: Path, url: str, n: int) -> dict[str, Any]:
    """Put *n* letters that wait to be handled."""

    async def put() -> None:
        async with Redrive(url) as app:
            for some in in_batches(payloads(n), _PUT_AT_ONCE):
                await app.enqueue_many([app.draft(KIND, body) for body in some])

    asyncio.run(put())
    return {"n": n}


# ---------------------------------------------------------------------- drains


def drain(
    _folder: Path, url: str, n: int, way: str, seconds: float = 0.0, concurrency: int | None = None, fails: str = ""
) -> dict[str, Any]:
    """
    Handle the *n* letters at *url* until nothing is left.

    *way* says how the handler works: `plain` never awaits, `yields` awaits once, `waits` sleeps for *seconds*,
    `thread` does that in a thread, `process` runs in child processes. *fails*: every tenth letter fails `once`
    and is retried without a wait, or fails for `good` at its first try.
    """
    return asyncio.run(_drain(url, n, way, seconds, concurrency, fails))


async def _drain(url: str, n: int, way: str, seconds: float, concurrency: int | None, fails: str) -> dict[str, Any]:
    marks = Marks(n)
    app = Redrive(url)
    options: dict[str, Any] = {}
    if fails:
        options["policy"] = RetryPolicy.constant(0, max_attempts=1 if fails == "good" else 5, jitter="none")
    if way in {"thread", "process"}:
        options["engine"] = way
    if concurrency:
        app.queue("default", concurrency=concurrency)
    app.handler(KIND, **options)(_handler(way, seconds, marks, fails))
    async with app:
        start = time.perf_counter()
        await app.run(until_idle=True)
        took = time.perf_counter() - start
        await _check(app, n, failed=n // _FAILING if fails == "good" else 0)
    if way != "process":
        marks.check(n)
    return {"n": n, "seconds": took}


async def _check(app: Redrive, n: int, *, failed: int) -> None:
    stats = await app.desk.stats()
    found = {name: stats.books[name] for name in ("enqueued", "delivered", "failed")}
    assert stats.balanced, stats.books
    assert found == {"enqueued": n, "delivered": n - failed, "failed": failed}, stats.books


class _Meant(Exception):
    """A failure that the benchmark asks for."""


def _handler(way: str, seconds: float, marks: Marks, fails: str) -> Callable[..., Any]:
    counts, failed = marks.counts, set()

    async def plain(order: dict) -> None:  # type: ignore[type-arg]
        number = order["i"]
        if fails and number % _FAILING == 0 and number not in failed:
            failed.add(number)
            counts[number] += fails == "good"  # its one try; otherwise the second try counts
            raise _Meant
        counts[number] += 1

    async def yields(order: dict) -> None:  # type: ignore[type-arg]
        await asyncio.sleep(0)
        counts[order["i"]] += 1

    async def waits(order: dict) -> None:  # type: ignore[type-arg]
        await asyncio.sleep(seconds)
        counts[order["i"]] += 1

    def thread(order: dict) -> None:  # type: ignore[type-arg]
        if seconds:
            time.sleep(seconds)
        counts[order["i"]] += 1

    return {"plain": plain, "yields": yields, "waits": waits, "thread": thread, "process": in_process}[way]


def in_process(order: dict) -> None:  # type: ignore[type-arg]
    """Do nothing, in a child process: the books say that it ran."""


# ---------------------------------------------------------------------- bare lanes


def lanes(_folder: Path, n: int, seconds: float, concurrency: int) -> dict[str, Any]:
    """Do the same work in *concurrency* asyncio tasks: decode, wait, note; no store."""
    return asyncio.run(_lanes(n, seconds, concurrency))


async def _lanes(n: int, seconds: float, concurrency: int) -> dict[str, Any]:
    marks = Marks(n)
    bodies = deque(json.dumps(payload(i)) for i in range(n))

    async def lane() -> None:
        while bodies:
            order = json.loads(bodies.popleft())
            await asyncio.sleep(seconds)
            marks.counts[order["i"]] += 1

    start = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(concurrency)))
    took = time.perf_counter() - start
    marks.check(n)
    return {"n": n, "seconds": took}


def pool(_folder: Path, n: int, seconds: float, concurrency: int) -> dict[str, Any]:
    """Do the same work in a thread pool of *concurrency*: decode, wait, note; no store."""
    marks = Marks(n)
    bodies = [json.dumps(payload(i)) for i in range(n)]

    def work(body: str) -> None:
        order = json.loads(body)
        time.sleep(seconds)
        marks.counts[order["i"]] += 1

    with ThreadPoolExecutor(concurrency) as threads:
        start = time.perf_counter()
        list(threads.map(work, bodies))
        took = time.perf_counter() - start
    marks.check(n)
    return {"n": n, "seconds": took}


# ---------------------------------------------------------------------- from enqueue to the handler


def latency(folder: Path, url: str, n: int) -> dict[str, Any]:
    """Enqueue one letter at a time to an idle worker of the same process; return medians of it and of a commit."""
    return asyncio.run(_latency(folder, url, n))


async def _latency(folder: Path, url: str, n: int) -> dict[str, Any]:
    begun: asyncio.Queue[float] = asyncio.Queue()
    app = Redrive(url)

    @app.handler(KIND)
    async def handle(_order: dict) -> None:  # type: ignore[type-arg]
        begun.put_nowait(time.perf_counter())

    waits, commits = [], []
    async with app:
        worker = asyncio.ensure_future(app.run())
        await _one(app, begun)  # the worker has started
        for _ in range(n):
            commits.append(_synced_write(folder / "bare"))
            await asyncio.sleep(0.02)  # idle again
            waits.append(await _one(app, begun))
        app.stop()
        await worker
    return {"n": n, "wait": statistics.median(waits), "commit": statistics.median(commits)}


async def _one(app: Redrive, begun: asyncio.Queue[float]) -> float:
    start = time.perf_counter()
    await app.enqueue(KIND, payload(0))
    return await begun.get() - start


def _synced_write(path: Path) -> float:
    """Return the seconds of one durable append of a page, as a commit of the bare disk costs."""
    with path.open("ab", buffering=0) as file:
        start = time.perf_counter()
        file.write(b"x" * 4096)
        os.fdatasync(file.fileno())
        return time.perf_counter() - start
