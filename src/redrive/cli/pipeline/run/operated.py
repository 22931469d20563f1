"""
What operators reach while `redrive pipeline run` runs.

Owns the admin service of an engine and the watch over pauses, for as long as the engine runs. Knows no verb.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from redrive.cli.output import note
from redrive.cli.pipeline.operate.asking import DEFAULT_ENGINE, open_kept_store, token_of
from redrive.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import typer

    from redrive.cli.pipeline.run.reloading import GraphReloads
    from redrive.sources.pipeline import Pipeline
    from redrive.sources.pipeline.admin.service import AdminServer
    from redrive.sources.pipeline.protos.admin_pb2 import ReloadRequest, ReloadResponse
    from redrive.stores.contract import Store


@asynccontextmanager
async def operated(
    ctx: typer.Context, pipeline: Pipeline, reloads: GraphReloads, address: str | None
) -> AsyncIterator[None]:
    """Serve operators of *pipeline* on *address*, and carry out pauses, meanwhile."""
    async with AsyncExitStack() as stack:
        store = reloads.store = await open_kept_store(ctx)
        if store is not None:
            stack.push_async_callback(store.close)
            await stack.enter_async_context(_paused_by(pipeline, store))
        server = await _served(ctx, pipeline, reloads, address)
        if server is not None:
            stack.push_async_callback(server.stop)
        yield


async def _served(
    ctx: typer.Context, pipeline: Pipeline, reloads: GraphReloads, address: str | None
) -> AdminServer | None:
    """Start the admin service; where the usual address is taken, another engine of this machine answers there."""
    from redrive.sources.pipeline.admin.admin_desk import AdminDesk
    from redrive.sources.pipeline.admin.service import AdminServer

    async def reload(request: ReloadRequest) -> ReloadResponse:
        return await reloads.reload(request.actor, dry_run=request.dry_run)

    desk = AdminDesk(lambda: pipeline.graph, pipeline.kafka, store=reloads.store, engine=pipeline)
    server = AdminServer(desk, address or DEFAULT_ENGINE, token=token_of(ctx), reload=reload, engine=pipeline)
    try:
        await server.start()
    except SourceError as error:
        if address is not None:
            raise
        note(f"redrive: this engine has no admin service: {error}")
        return None
    return server


@asynccontextmanager
async def _paused_by(pipeline: Pipeline, store: Store) -> AsyncIterator[None]:
    from redrive.engine.clock import SystemClock
    from redrive.sources.pipeline.admin.pauses import PauseWatcher

    watching = asyncio.create_task(PauseWatcher(pipeline, store, SystemClock()).run(lambda: False))
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
