"""
Whom the operators' commands of `redrive pipeline` ask.

Owns the choice: the engine at `--engine`, or, with `--graph`, the broker and the store themselves, so that operators
can work while no engine runs. Both have the same verbs. Knows no command.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from redrive.cli.session import absent_file, settings_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.stores.contract import Store

T = TypeVar("T")
GraphOption = Annotated[
    Path | None, typer.Option("--graph", "-g", metavar="GRAPH", help="Ask the broker, by this graph, and no engine.")
]
EngineOption = Annotated[str, typer.Option("--engine", metavar="ADDRESS", help="The admin service of an engine.")]
ServersOption = Annotated[
    str | None, typer.Option("--servers", help="With --graph: the brokers; KAFKA_BOOTSTRAP_SERVERS if absent.")
]
DEFAULT_ENGINE = "127.0.0.1:50050"


def asked(
    ctx: typer.Context, graph: Path | None, engine: str, servers: str | None, work: Callable[[Any], Awaitable[T]]
) -> T:
    """Return what *work* makes of the desk that these options mean."""
    import asyncio

    async def run() -> T:
        if graph is None:
            return await _ask_engine(ctx, engine, work)
        return await _ask_broker(ctx, graph, servers, work)

    return asyncio.run(run())


async def _ask_engine(ctx: typer.Context, engine: str, work: Callable[[Any], Awaitable[T]]) -> T:
    from redrive.sources.pipeline.admin.remote import RemoteDesk

    desk = RemoteDesk(engine, token=token_of(ctx))
    try:
        return await work(desk)
    finally:
        await desk.close()


async def _ask_broker(ctx: typer.Context, path: Path, servers: str | None, work: Callable[[Any], Awaitable[T]]) -> T:
    from redrive.cli.kafka.options import config_of
    from redrive.sources.pipeline.admin.admin_desk import AdminDesk
    from redrive.sources.pipeline.graph.reading import load_graph

    graph, store = load_graph(path), await open_kept_store(ctx)
    try:
        return await work(AdminDesk(lambda: graph, config_of(servers), store=store))
    finally:
        if store is not None:
            await store.close()


def token_of(ctx: typer.Context) -> str:
    """Return the token of the admin service; nothing if none is set."""
    settings = settings_of(ctx)
    return settings.secret(settings.pipeline_token) if settings.pipeline_token else ""


async def open_kept_store(ctx: typer.Context) -> Store | None:
    """Return the open store of the settings; None if there is none yet, or only one in memory."""
    from redrive.wiring import open_store

    url = settings_of(ctx).url
    if url.startswith("memory:") or absent_file(url) is not None:
        return None
    store = open_store(url)
    await store.open()
    return store
