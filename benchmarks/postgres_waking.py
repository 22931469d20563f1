"""
How soon an idle worker begins: from a commit to the first line of the handler.

Owns one letter at a time, far enough apart that the worker sleeps between them. Producer and
worker are two processes, as they are in life; both read the one monotonic clock of the machine.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from typing import TYPE_CHECKING, Any

from benchmarks import postgres_peers
from benchmarks.letters import KIND, payload
from benchmarks.race import on_fast_loop
from redrive import Redrive

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

_APART = 0.03  # seconds between two letters
_WARM = 5  # letters that are not counted
_PATIENCE = 60.0


def waking(_folder: Path, url: str, n: int, contender: str) -> dict[str, Any]:
    """Send *n* letters to an idle worker; return the milliseconds of each."""
    total = n + _WARM
    context = multiprocessing.get_context("spawn")
    begun, ready = context.Array("d", total), context.Event()
    worker = context.Process(target=_serve, args=(contender, url, begun, ready), daemon=True)
    on_fast_loop(_PREPARE[contender](url))
    worker.start()
    assert ready.wait(_PATIENCE)
    sent = on_fast_loop(_SEND[contender](url, total))
    _await_all(begun, total)
    worker.kill()
    worker.join()
    return {"ms": [(begun[i] - sent[i]) * 1_000 for i in range(_WARM, total)]}


def _await_all(begun: Any, total: int) -> None:
    end = time.perf_counter() + _PATIENCE
    while not all(begun[:total]):
        assert time.perf_counter() < end, f"{sum(map(bool, begun[:total]))} of {total} were begun"
        time.sleep(0.05)


async def _send(send: Callable[[dict[str, Any]], Awaitable[object]], total: int) -> list[float]:
    """Return when each letter was known to be committed."""
    sent = []
    await asyncio.sleep(1.0)  # the worker has found nothing, and sleeps
    for i in range(total):
        await send(payload(i))
        sent.append(time.perf_counter())
        await asyncio.sleep(_APART)
    return sent


# ---------------------------------------------------------------------- workers


def _serve(contender: str, url: str, begun: Any, ready: Any) -> None:
    def began(number: int) -> None:
        begun[number] = time.perf_counter()

    on_fast_loop(_WORK[contender](url, began, ready))


async def _redrive_work(url: str, began: Callable[[int], None], ready: Any) -> None:
    app = Redrive(url)

    @app.handler(KIND)
    async def handle(order: dict) -> None:  # type: ignore[type-arg]
        began(order["i"])

    async with app:
        ready.set()
        await app.run()


async def _pgqueuer_work(url: str, began: Callable[[int], None], ready: Any) -> None:
    app = await postgres_peers.pgqueuer_app(url, began)
    ready.set()
    await app.qm.run()


async def _procrastinate_work(url: str, began: Callable[[int], None], ready: Any) -> None:
    app, _ = postgres_peers.procrastinate_app(url, 12, began)
    async with app.open_async():
        ready.set()
        await app.run_worker_async(wait=True, install_signal_handlers=False, concurrency=10)


# ---------------------------------------------------------------------- producers


async def _redrive_prepare(url: str) -> None:
    async with Redrive(url):
        pass


async def _redrive_send(url: str, total: int) -> list[float]:
    async with Redrive(url) as app:
        return await _send(lambda body: app.enqueue(KIND, body), total)


async def _pgqueuer_prepare(url: str) -> None:
    await postgres_peers.pgqueuer_fill(url, 0, 1)


async def _pgqueuer_send(url: str, total: int) -> list[float]:
    import asyncpg  # noqa: PLC0415 - only here
    from pgqueuer import AsyncpgDriver, Queries  # noqa: PLC0415

    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    return await _send(lambda body: queries.enqueue(KIND, json.dumps(body).encode()), total)


async def _procrastinate_prepare(url: str) -> None:
    await postgres_peers.procrastinate_fill(url, 0, 1)


async def _procrastinate_send(url: str, total: int) -> list[float]:
    app, task = postgres_peers.procrastinate_app(url, 4, lambda _number: None)
    async with app.open_async():
        return await _send(lambda body: task.defer_async(**body), total)


_PREPARE = {"redrive": _redrive_prepare, "pgqueuer": _pgqueuer_prepare, "procrastinate": _procrastinate_prepare}
_SEND = {"redrive": _redrive_send, "pgqueuer": _pgqueuer_send, "procrastinate": _procrastinate_send}
_WORK = {"redrive": _redrive_work, "pgqueuer": _pgqueuer_work, "procrastinate": _procrastinate_work}
