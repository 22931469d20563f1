"""
Other PostgreSQL queues, and a loop by hand on the same driver.

Owns how each is set up, filled and drained, with the settings at which it is quickest. All on
uvloop, all with the server's full durability. A contender is `prepare`, `fill` and a `work`.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from typing import TYPE_CHECKING, Any

from benchmarks.letters import KIND, in_batches, payloads

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.letters import Marks

# ---------------------------------------------------------------------- the loop by hand

RAW_TABLE = """
CREATE TABLE letters (
    id uuid PRIMARY KEY, queue text NOT NULL, kind text NOT NULL, status text NOT NULL DEFAULT 'pending',
    payload bytea NOT NULL, attempts integer NOT NULL DEFAULT 0, due_at timestamptz NOT NULL DEFAULT now(),
    lease_until timestamptz, idempotency_key text, last_error text, failure_history jsonb DEFAULT '[]'
) WITH (fillfactor = 70);
CREATE INDEX letters_due ON letters (queue, due_at, id) WHERE status = 'pending';
CREATE INDEX letters_lease ON letters (lease_until) WHERE status = 'in_flight';
"""
RAW_PUT = (
    "INSERT INTO letters (id, queue, kind, payload) SELECT id, 'default', $3, payload "
    "FROM unnest($1::uuid[], $2::bytea[]) AS new (id, payload)"
)
RAW_CLAIM = """
WITH due AS (
    SELECT id FROM letters WHERE queue = 'default' AND status = 'pending' AND due_at <= now()
     ORDER BY due_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE letters AS l SET status = 'in_flight', attempts = attempts + 1, lease_until = now() + interval '30 seconds'
  FROM due WHERE l.id = due.id RETURNING l.id, l.payload
"""
RAW_FINISH = "UPDATE letters SET status = 'delivered', lease_until = NULL WHERE id = ANY ($1::uuid[])"


async def raw_fill(url: str, n: int, batch: int) -> float:
    """Make the table and put *n* rows; return the seconds that putting took."""
    import asyncpg  # noqa: PLC0415 - only here

    connection = await asyncpg.connect(url)
    await connection.execute(RAW_TABLE)
    bodies = payloads(n)
    start = time.perf_counter()
    for some in in_batches(bodies, batch):
        texts = [json.dumps(body, separators=(",", ":")).encode() for body in some]
        await connection.execute(RAW_PUT, [uuid.uuid4() for _ in some], texts, KIND)
    seconds = time.perf_counter() - start
    await connection.close()
    return seconds


async def raw_work(marks: Marks, go: Callable[[], object], url: str, batch: int, connections: int = 2) -> float:
    """Claim a batch, decode, finish the batch: two commits; two connections, so that the server is never idle."""
    import asyncpg  # noqa: PLC0415 - only here

    async def loop(connection: Any) -> None:
        while found := await connection.fetch(RAW_CLAIM, batch):
            for row in found:
                marks.counts[json.loads(row[1])["i"]] += 1
            await connection.execute(RAW_FINISH, [row[0] for row in found])

    opened = [await asyncpg.connect(url) for _ in range(connections)]
    go()
    await asyncio.gather(*map(loop, opened))
    return time.perf_counter()


# ---------------------------------------------------------------------- pgqueuer


async def pgqueuer_fill(url: str, n: int, batch: int) -> float:
    """Install it and enqueue *n* jobs in lists of *batch*; return the seconds that enqueueing took."""
    import asyncpg  # noqa: PLC0415 - only here
    from pgqueuer import AsyncpgDriver, Queries  # noqa: PLC0415

    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    bodies = payloads(n)
    start = time.perf_counter()
    for some in in_batches(bodies, batch):
        texts: list[bytes | None] = [json.dumps(body, separators=(",", ":")).encode() for body in some]
        await queries.enqueue([KIND] * len(some), texts, [0] * len(some))
    seconds = time.perf_counter() - start
    await connection.close()
    return seconds


async def pgqueuer_work(marks: Marks, go: Callable[[], object], url: str, batch: int) -> float:
    """Drain by its own queue manager."""
    from pgqueuer.types import QueueExecutionMode  # noqa: PLC0415 - only here

    app = await pgqueuer_app(url, lambda number: _count(marks, number))
    go()
    await app.qm.run(mode=QueueExecutionMode.drain, batch_size=batch)
    return time.perf_counter()


async def pgqueuer_app(url: str, handled: Callable[[int], None]) -> Any:
    import asyncpg  # noqa: PLC0415 - only here
    from pgqueuer import AsyncpgDriver, PgQueuer  # noqa: PLC0415

    app = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @app.entrypoint(KIND)
    async def handle(job: Any) -> None:
        handled(json.loads(job.payload)["i"])

    return app


# ---------------------------------------------------------------------- procrastinate


async def procrastinate_fill(url: str, n: int, batch: int) -> float:
    """Install it and defer *n* jobs, *batch* a call; return the seconds that deferring took."""
    app, task = procrastinate_app(url, 4, lambda _number: None)
    bodies = payloads(n)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        start = time.perf_counter()
        for some in in_batches(bodies, batch):
            await task.batch_defer_async(*some)
        return time.perf_counter() - start


async def procrastinate_work(marks: Marks, go: Callable[[], object], url: str, concurrency: int) -> float:
    """Drain by its own worker."""
    app, _ = procrastinate_app(url, concurrency + 2, lambda number: _count(marks, number))
    async with app.open_async():
        go()
        await app.run_worker_async(wait=False, install_signal_handlers=False, concurrency=concurrency)
        return time.perf_counter()


def procrastinate_app(url: str, connections: int, handled: Callable[[int], None]) -> tuple[Any, Any]:
    import procrastinate  # noqa: PLC0415 - only here

    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=2, max_size=connections)
    app = procrastinate.App(connector=connector)

    @app.task(name=KIND, queue="default")
    async def handle(i: int, **_rest: Any) -> None:
        handled(i)

    return app, handle


def _count(marks: Marks, number: int) -> None:
    marks.counts[number] += 1
