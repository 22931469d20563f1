"""
The servers that receive webhooks: redrive's inbox and its peers, each in a process of its own.

Owns the peers. All check the same HMAC over the raw body, with the same web server (uvicorn, httptools) and the same
event loop (uvloop). What is durable commits with `synchronous=FULL`. Knows no load.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import uvicorn
import uvloop

from benchmarks.inbox_load import SECRET

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiosqlite

_TABLE = """CREATE TABLE IF NOT EXISTS events (
    id TEXT PRIMARY KEY, idempotency_key TEXT NOT NULL UNIQUE, event_type TEXT NOT NULL, payload BLOB NOT NULL,
    status TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, last_error TEXT, retry_after TEXT,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL)"""
_INSERT = """INSERT INTO events (id, idempotency_key, event_type, payload, status, created_at, updated_at)
    VALUES (?, ?, ?, ?, 'pending', datetime('now'), datetime('now')) ON CONFLICT DO NOTHING"""
WORKERS = 85  # of the origin's shape, as it ships


def _holds(headers: Any, body: bytes) -> bool:
    expected = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, headers.get("x-hub-signature-256", ""))


async def _database(path: str) -> aiosqlite.Connection:
    import aiosqlite  # noqa: PLC0415 - not every server has it

    found = await aiosqlite.connect(path)
    for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA busy_timeout=5000", _TABLE):
        await found.execute(statement)
    await found.execute("CREATE INDEX IF NOT EXISTS status_created ON events (status, created_at)")
    await found.commit()
    async with found.execute("PRAGMA synchronous") as cursor:
        assert await cursor.fetchone() == (2,), "not FULL"
    return found


# ---------------------------------------------------------------------- the peers


def starlette(path: str, *, durable: bool, apart: bool = True) -> Any:
    """
    Return a Starlette application: one durable commit for each request, or nothing kept at all.

    Requests share one connection, as is usual. With *apart* each has a transaction of its own. Without it the
    statements of several requests mix, so that one commit serves many of them, and a rollback would undo others' rows.
    """
    import contextlib  # noqa: PLC0415
    import uuid  # noqa: PLC0415

    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.responses import JSONResponse  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    lock = asyncio.Lock() if apart else contextlib.nullcontext()

    async def receive(request: Any) -> Any:
        body = await request.body()
        if not _holds(request.headers, body):
            return JSONResponse({"error": "signature"}, 401)
        number = str(uuid.uuid4())
        if durable:
            database = request.app.state.database
            values = (number, request.headers["x-github-delivery"], request.headers["x-github-event"], body)
            async with lock:
                await database.execute(_INSERT, values)
                await database.commit()
        return JSONResponse({"id": number}, 202)

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        app.state.database = await _database(path) if durable else None
        yield
        if durable:
            await app.state.database.close()

    return Starlette(routes=[Route("/hooks/{source}", receive, methods=["POST"])], lifespan=lifespan)


def origin(path: str, *, processing: bool) -> Any:
    """Return FastAPI with a pydantic model, a look for a duplicate, a durable commit, and a queue in the process."""
    import contextlib  # noqa: PLC0415
    import uuid  # noqa: PLC0415

    from fastapi import FastAPI, HTTPException, Request  # noqa: PLC0415
    from pydantic import BaseModel  # noqa: PLC0415

    class WebhookIn(BaseModel):
        idempotency_key: str
        event_type: str
        payload: Any

    class WebhookOut(BaseModel):
        id: str
        idempotency_key: str
        status: str

    queue: asyncio.Queue[str] = asyncio.Queue()

    async def work(database: aiosqlite.Connection) -> None:
        while True:
            number = await queue.get()
            for status in ("processing", "completed"):
                await database.execute("UPDATE events SET status = ? WHERE id = ?", (status, number))
                await database.commit()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.database = await _database(path)
        workers = [asyncio.create_task(work(app.state.database)) for _ in range(WORKERS if processing else 0)]
        yield
        for worker in workers:
            worker.cancel()
        await app.state.database.close()

    app = FastAPI(lifespan=lifespan)

    async def receive(source: str, event: WebhookIn, request: Request) -> WebhookOut:  # noqa: ARG001 - of the path
        if not _holds(request.headers, await request.body()):
            raise HTTPException(401, "signature")
        database = app.state.database
        async with database.execute("SELECT id FROM events WHERE idempotency_key = ?", (event.idempotency_key,)) as one:
            found = await one.fetchone()
        if found is not None:
            raise HTTPException(200, "duplicate")
        number = str(uuid.uuid4())
        payload = json.dumps(event.payload)
        await database.execute(_INSERT, (number, event.idempotency_key, event.event_type, payload))
        await database.commit()
        if processing:
            queue.put_nowait(number)
        return WebhookOut(id=number, idempotency_key=event.idempotency_key, status="pending")

    receive.__annotations__ = {"source": str, "event": WebhookIn, "request": Request, "return": WebhookOut}
    app.post("/hooks/{source}", status_code=202)(receive)
    return app


async def _serve_peer(app: Any, listening: socket.socket) -> None:
    config = uvicorn.Config(app, http="httptools", ws="none", access_log=False, log_level="warning")
    await uvicorn.Server(config).serve([listening])


# ---------------------------------------------------------------------- ours


async def _serve_ours(path: str, listening: socket.socket, *, processing: bool) -> None:
    from redrive import Redrive  # noqa: PLC0415 - peers do not pay for it
    from redrive.sources.webhook import Inbox, Source  # noqa: PLC0415
    from redrive.sources.webhook.serving import server  # noqa: PLC0415

    app = Redrive(f"sqlite:///{path}")
    source = Source.github(secrets=["env:BENCH_SECRET"])
    inbox = Inbox(app, [source], workers="here" if processing else "elsewhere")
    if processing:

        @app.handler("github.push")
        async def push(_payload: bytes) -> None:
            return None

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await server.serve(inbox, listening, server.listen("127.0.0.1:0"), stop)


def main() -> None:
    """Serve the contender that the arguments name until SIGTERM; print the port first."""
    name, path, processing = sys.argv[1], sys.argv[2], sys.argv[3] == "on"
    os.environ |= {"BENCH_SECRET": SECRET, "QUEUE_MAXSIZE": "100000000"}
    listening = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    serving = {
        "redrive": lambda: _serve_ours(path, listening, processing=processing),
        "durable": lambda: _serve_peer(starlette(path, durable=True), listening),
        "mixed": lambda: _serve_peer(starlette(path, durable=True, apart=False), listening),
        "nothing": lambda: _serve_peer(starlette(path, durable=False), listening),
        "origin": lambda: _serve_peer(origin(path, processing=processing), listening),
    }[name]()
    print(listening.getsockname()[1], flush=True)
    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(serving)


if __name__ == "__main__":
    main()
