"""
What operators reach while `redrive pipeline run` runs.

Owns the admin service of an engine and the watch over pauses, for as long as the engine runs. Knows no verb.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from redrive.cli.output import note
from redrive.cli.pipeline.asking import DEFAULT_ENGINE, open_kept_store, token_of
from redrive.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import typer

    from redrive.sources.pipeline import Pipeline
    from redrive.sources.pipeline.admin.service import AdminServer
    from redrive.sources.pipeline.protos.admin_pb2 import ReloadRequest, ReloadResponse
    from redrive.stores.contract import Store


@asynccontextmanager
async def operated(ctx: typer.Context, pipeline: Pipeline, path: Path, address: str | None) -> AsyncIterator[None]:
    """Serve operators of *pipeline* on *address*, and carry out pauses, meanwhile."""
    async with AsyncExitStack() as stack:
        store = await open_kept_store(ctx)
        if store is not None:
            stack.push_async_callback(store.close)
            await stack.enter_async_context(_paused_by(pipeline, store))
        server = await _served(ctx, pipeline, path, address, store)
        if server is not None:
            stack.push_async_callback(server.stop)
        yield


async def _served(
    ctx: typer.Context, pipeline: Pipeline, path: Path, address: str | None, store: Store | None
) -> AdminServer | None:
    """Start the admin service; where the usual address is taken, another engine of this machine answers there."""
    from redrive.sources.pipeline.admin.admin_desk import AdminDesk
    from redrive.sources.pipeline.admin.service import AdminServer

    async def reload(request: ReloadRequest) -> ReloadResponse:
        answer = await reloaded(pipeline, path, dry_run=request.dry_run)
        if store is not None and not request.dry_run and not answer.problems:
            told = f"{pipeline.graph.id} version {answer.new_version}"
            await store.record(request.actor, "pipeline reload", told, 1, "")
        return answer

    desk = AdminDesk(lambda: pipeline.graph, pipeline.kafka, store=store, engine=pipeline)
    server = AdminServer(desk, address or DEFAULT_ENGINE, token=token_of(ctx), reload=reload, engine=pipeline)
    try:
        await server.start()
    except SourceError as error:
        if address is not None:
            raise
        note(f"redrive: this engine has no admin service: {error}")
        return None
    return server


async def reloaded(pipeline: Pipeline, path: Path, *, dry_run: bool = False) -> ReloadResponse:
    """Read the graph again and go on with it; one that cannot run is answered with its problems."""
    from redrive.sources.pipeline.graph.problems import errors
    from redrive.sources.pipeline.graph.reading import examine_file
    from redrive.sources.pipeline.protos.admin_pb2 import ReloadResponse

    before, examined = pipeline.graph, examine_file(path)
    answer = ReloadResponse(old_version=before.version, new_version=before.version)
    after = examined.graph
    if after is None:
        answer.problems.extend(str(problem) for problem in errors(examined.problems))
        return answer
    answer.new_version = after.version
    answer.added_node_ids.extend(sorted(after.by_id.keys() - before.by_id.keys()))
    answer.removed_node_ids.extend(sorted(before.by_id.keys() - after.by_id.keys()))
    both = after.by_id.keys() & before.by_id.keys()
    answer.changed_node_ids.extend(sorted(name for name in both if after.by_id[name] != before.by_id[name]))
    if not dry_run:
        await pipeline.reload(after)
    return answer


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
