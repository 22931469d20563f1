"""
`redrive pipeline run`: the engine of a graph.

Owns its signals: SIGTERM and SIGINT drain and stop, SIGHUP and a changed file (`--watch`) reload the graph. Knows no
document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.kafka.options import Servers, config_of
from redrive.cli.options import AsJson
from redrive.cli.output import emit, say
from redrive.cli.pipeline.check import GraphFile
from redrive.cli.pipeline.extra import needs_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from redrive.sources.pipeline import Pipeline

_LOOK = 1.0  # seconds between two looks at a watched file


@needs_pipeline
def run(
    ctx: typer.Context,
    graph: GraphFile,
    *,
    servers: Servers = None,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="Messages, dead letters and offsets of a node in one transaction.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Reload the graph when its file changes.")] = False,
    admin: Annotated[
        str | None,
        typer.Option("--admin", metavar="ADDRESS", help="Serve operators here; 127.0.0.1:50050 if absent."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, envvar="REDRIVE_METRICS_PORT", help="Serve Prometheus metrics here."),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(envvar="REDRIVE_METRICS_HOST", help="The address that metrics are served on.")
    ] = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Run the graph until stopped. SIGTERM or SIGINT drains and commits; SIGHUP reloads the graph."""
    import asyncio

    from redrive.cli.run.worker import set_up_log
    from redrive.cli.session import settings_of
    from redrive.sources.pipeline import Pipeline, load_graph

    settings = settings_of(ctx)
    set_up_log(settings)
    pipeline = Pipeline(load_graph(graph), config_of(servers), exactly_once=exactly_once, tracing=settings.tracing)
    metrics = _metrics(pipeline, metrics_host, metrics_port)
    asyncio.run(_run(ctx, pipeline, graph, metrics, watch=watch, admin=admin))
    if as_json:
        return emit({"ended": "stopped", "nodes": {name: counts.shown() for name, counts in pipeline.counts.items()}})
    return say("stopped")


def _metrics(pipeline: Pipeline, host: str, port: int | None) -> AbstractAsyncContextManager[object]:
    """Return what serves metrics while the engine runs, if a port is given."""
    if port is None:
        from contextlib import nullcontext

        return nullcontext()
    from redrive.sources.pipeline.admin.signals.prometheus import serving_metrics

    return serving_metrics(pipeline, host, port)


async def _run(
    ctx: typer.Context, pipeline: Pipeline, path: Path, metrics: AbstractAsyncContextManager[object], *, watch: bool,
    admin: str | None,
) -> None:  # fmt: skip
    import asyncio
    import signal

    from redrive.cli.pipeline.run.operated import operated
    from redrive.cli.pipeline.run.reloading import GraphReloads

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, pipeline.stop)
    reloads = GraphReloads(pipeline, path)
    loop.add_signal_handler(signal.SIGHUP, reloads.ask, "SIGHUP")
    reloading = asyncio.create_task(reloads.run())
    watching = asyncio.create_task(_watch(path, lambda: reloads.ask("--watch"))) if watch else None
    try:
        async with metrics, operated(ctx, pipeline, reloads, admin):
            await pipeline.run()
    finally:
        reloading.cancel()
        if watching is not None:
            watching.cancel()


async def _watch(path: Path, reload: Callable[[], None]) -> None:
    """Call *reload* whenever the file changes."""
    from asyncio import sleep

    seen = _mark(path)
    while True:
        await sleep(_LOOK)
        if (now := _mark(path)) != seen:
            seen = now
            reload()


def _mark(path: Path) -> tuple[int, int]:
    """Return what changes with the file: when it was written, and its size."""
    try:
        found = path.stat()
    except OSError:  # an editor is just replacing it
        return 0, 0
    return found.st_mtime_ns, found.st_size
