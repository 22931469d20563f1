"""
SQLite queues of others, through their public interfaces: put, then get and acknowledge.

Each function is one case in a process of its own: it puts *n* letters, takes and
acknowledges them, checks that each was handled once and reads back how durable its
commits were. A phase is cut after *cut* seconds; its rate is then that of what it did.
"""
# ruff: noqa: PLC0415 - a peer is imported only in the process that measures it

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.letters import Marks, each, in_batches, payloads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SYNC = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
Phase = tuple[int, float]  # how many, in how many seconds


def answer(put: Phase, got: Phase, level: int, sqlite: str = sqlite3.sqlite_version) -> dict[str, Any]:
    return {
        "put": {"n": put[0], "seconds": put[1]},
        "get": {"n": got[0], "seconds": got[1]},
        "synchronous": SYNC[level],
        "sqlite": sqlite,
    }


# ---------------------------------------------------------------------- the peers


def huey(folder: Path, n: int, cut: float | None, *, threads: int = 1) -> dict[str, Any]:
    """SqliteHuey, which deletes the row before the task runs; driven by its dequeue and execute."""
    from huey import SqliteHuey

    app = SqliteHuey(filename=str(folder / "huey.db"), fsync=True, results=False, cache_mb=64)
    marks = Marks(n)

    @app.task()  # type: ignore[untyped-decorator]
    def handle(body: dict[str, Any]) -> None:
        marks.counts[body["i"]] += 1

    put = each(handle, payloads(n), cut) if threads == 1 else _from_threads(handle, n, threads, cut)
    got = each(app.execute, iter(app.dequeue, None), cut)
    marks.check(got[0])
    level = app.storage.conn.execute("PRAGMA synchronous").fetchone()[0]
    return answer(put, got, level)


def _from_threads(action: Callable[[Any], object], n: int, threads: int, cut: float | None) -> Phase:
    shares = [payloads(n)[first::threads] for first in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        done = sum(count for count, _ in pool.map(lambda share: each(action, share, cut), shares))
        return done, time.perf_counter() - start


def litequeue(folder: Path, n: int, cut: float | None, *, full: bool = True, batch: int = 1) -> dict[str, Any]:
    """LiteQueue, as it ships (NORMAL) or set to FULL."""
    from litequeue import LiteQueue

    queue = LiteQueue(str(folder / "litequeue.db"))
    if full:
        queue.conn.execute("PRAGMA synchronous = full")
    put = _lite_put(queue, n, batch, cut)
    marks = Marks(n)

    def take(_: int) -> None:
        message = queue.pop()
        marks.counts[msgspec.json.decode(message.data)["i"]] += 1
        assert queue.done(message.message_id, claim_id=message.claim_id)

    got = each(take, range(put[0]), cut)
    marks.check(got[0])
    return answer(put, got, queue.conn.execute("PRAGMA synchronous").fetchone()[0])


def _lite_put(queue: Any, n: int, batch: int, cut: float | None) -> Phase:
    def put(body: dict[str, Any]) -> None:
        queue.put(msgspec.json.encode(body).decode())

    def put_some(bodies: list[dict[str, Any]]) -> None:
        with queue.transaction(mode="IMMEDIATE"):
            for body in bodies:
                put(body)

    if batch == 1:
        return each(put, payloads(n), cut)
    done, seconds = each(put_some, in_batches(payloads(n), batch), cut)
    return min(n, done * batch), seconds


def persist_queue(folder: Path, n: int, cut: float | None) -> dict[str, Any]:
    """SQLiteAckQueue; it refuses to batch its commits."""
    import persistqueue

    queue = persistqueue.SQLiteAckQueue(str(folder / "persist"), multithreading=True)
    marks = Marks(n)
    put = each(queue.put, payloads(n), cut)

    def take(_: int) -> None:
        item = queue.get(block=False)
        marks.counts[item["i"]] += 1
        queue.ack(item)

    got = each(take, range(put[0]), cut)
    marks.check(got[0])
    putter: Any = queue._putter  # noqa: SLF001 - only to look
    return answer(put, got, putter.execute("PRAGMA synchronous").fetchone()[0])


def honker(folder: Path, n: int, cut: float | None, batch: int) -> dict[str, Any]:
    """It runs with NORMAL: a commit may be lost in a power cut."""
    import honker as library

    database = library.open(str(folder / "honker.db"))
    queue = database.queue("q")
    put = _honker_put(database, queue, n, batch, cut)
    marks = Marks(n)

    def take(jobs: list[Any]) -> None:
        for job in jobs:
            marks.counts[job.payload["i"]] += 1
        queue.ack_batch([job.id for job in jobs], "w")

    rounds = iter(lambda: queue.claim_batch("w", batch), [])
    _, seconds = each(take, rounds, cut)
    handled = marks.check(marks.counts.count(1))
    assert cut or handled == put[0], f"{handled} of {put[0]}"
    with database.transaction() as transaction:
        level = next(iter(transaction.query("PRAGMA synchronous")[0].values()))
        version = next(iter(transaction.query("SELECT sqlite_version()")[0].values()))
    return answer(put, (handled, seconds), int(level), version)


def _honker_put(database: Any, queue: Any, n: int, batch: int, cut: float | None) -> Phase:
    def put_some(bodies: list[dict[str, Any]]) -> None:
        with database.transaction() as transaction:
            for body in bodies:
                queue.enqueue(body, tx=transaction)

    done, seconds = each(put_some, in_batches(payloads(n), batch), cut)
    return min(n, done * batch), seconds
