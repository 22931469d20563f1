"""
redrive on PostgreSQL: enqueue and drain, as a user runs them.

Owns how it is filled and drained. Default settings, the real worker, full semantics; after
each, every letter is accounted for and the books balance.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.letters import KIND, in_batches, payload, payloads
from benchmarks.race import on_fast_loop
from benchmarks.sqlite_redrive import handler_for
from redrive import Redrive
from redrive.engine.clock import new_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.letters import Marks

# The row that `outbox_enqueue` writes, written by hand.
INSERT = """
INSERT INTO redrive.outbox (
    token, due_at, occurred_at, cycle_at, updated_at, generation, event_version, priority, held, lane, id, queue,
    event_type, key, idempotency_key, source, target, workspace_id, channel, trace_context, content_type, payload, why)
VALUES (
    nextval('redrive.outbox_token'), now(), now(), now(), now(), NULL, 1, 1, 0, 0, $1, 'default', $2, NULL, NULL, NULL,
    NULL, NULL, 'outbox_default', NULL, 'application/json', $3, 'enqueued')
"""
ENQUEUE = "SELECT redrive.outbox_enqueue($2, NULL, p_id => $1, p_body => $3, p_notify => "
WAYS = {"insert": INSERT, "enqueue": f"{ENQUEUE}false)", "enqueue and wake": f"{ENQUEUE}true)"}
_BLOCK = 100  # transactions of one way before the other has its turn


async def fill(url: str, n: int, batch: int) -> float:
    """Put *n* letters by `enqueue_many`; return the seconds that took."""
    bodies = payloads(n)
    async with Redrive(url) as app:
        before = (await app.desk.stats()).books
        start = time.perf_counter()
        for some in in_batches(bodies, batch):
            await app.enqueue_many([app.draft(KIND, body) for body in some])
        seconds = time.perf_counter() - start
        await check(app, enqueued=before["enqueued"] + n, pending=before["pending"] + n)
    return seconds


async def work(marks: Marks, go: Callable[[], object], url: str) -> float:
    """Run a worker until nothing is left."""
    app = Redrive(url)
    app.handler(KIND)(handler_for("async", marks))
    async with app:
        go()
        await app.run(until_idle=True)
        return time.perf_counter()


async def check(app: Redrive, **expected: int) -> None:
    """Stop unless the books balance and say what they should."""
    stats = await app.desk.stats()
    found = {name: stats.books[name] for name in expected}
    assert stats.balanced, stats.books
    assert found == expected, f"{stats.books} instead of {expected}"


async def check_drained(url: str) -> None:
    """Stop unless nothing is left to do and the books balance."""
    async with Redrive(url) as app:
        await check(app, pending=0, in_flight=0)


# ---------------------------------------------------------------------- inside somebody's transaction


def transactions(_folder: Path, url: str, n: int) -> dict[str, Any]:
    """Write *n* letters each way, one a transaction, by turns; return the seconds of each way."""
    return dict(on_fast_loop(_transactions(url, n)))


async def _transactions(url: str, n: int) -> dict[str, float]:
    import asyncpg  # noqa: PLC0415 - only here

    async with Redrive(url):  # makes the schema
        pass
    connection = await asyncpg.connect(url)
    seconds = dict.fromkeys(WAYS, 0.0)
    for start in range(0, n, _BLOCK):
        for way, sql in WAYS.items():
            seconds[way] += await _block(connection, sql, range(start, start + _BLOCK))
    await connection.close()
    return seconds


async def _block(connection: Any, sql: str, numbers: range) -> float:
    import msgspec  # noqa: PLC0415 - only here

    rows = [(new_id(), KIND, msgspec.json.encode(payload(i))) for i in numbers]
    statement = await connection.prepare(sql)
    start = time.perf_counter()
    for row in rows:
        async with connection.transaction():
            await statement.fetch(*row)
    return time.perf_counter() - start
