"""
`redrive pipeline top`: the nodes of a graph, live.

Owns what stands on the screen: the nodes that need a look first, and how many documents a second came to each since
the last look. Knows no engine: it asks as `redrive pipeline nodes` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.options import AsJson
from redrive.cli.output import emit
from redrive.cli.pipeline.extra import needs_pipeline
from redrive.cli.pipeline.operate.asking import DEFAULT_ENGINE, EngineOption, GraphOption, ServersOption, asked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from rich.console import Group as Frame

Interval = Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")]
Count = Annotated[int | None, typer.Option("--count", min=1, help="Look so often, then end; until Ctrl-C if absent.")]


@needs_pipeline
def top(
    ctx: typer.Context, *, interval: Interval = 2.0, count: Count = None, graph: GraphOption = None,
    engine: EngineOption = DEFAULT_ENGINE, servers: ServersOption = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Watch what waits, fails and moves at each node. Ctrl-C ends it."""
    show = _print_each if as_json else _draw
    try:
        asked(ctx, graph, engine, servers, lambda desk: show(_looks(desk, interval, count)))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


async def _looks(desk: Any, interval: float, count: int | None) -> AsyncIterator[tuple[Any, dict[str, float]]]:
    """Yield the nodes, and how many documents a second came to each since the last look."""
    from itertools import count as numbers

    from redrive.engine.clock import SystemClock
    from redrive.sources.pipeline.protos.admin_pb2 import ListNodesRequest

    clock, before, looked = SystemClock(), None, 0.0
    for _ in numbers() if count is None else range(count):
        if before is not None:
            await clock.sleep(interval)
        found, now = await desk.list_nodes(ListNodesRequest()), clock.monotonic()
        yield found, rates(before, found, now - looked)
        before, looked = found, now


def rates(before: Any, after: Any, seconds: float) -> dict[str, float]:
    """Return the documents a second that came to each node between two looks; an engine that restarted has none."""
    counted = [] if before is None else [each for each in before.nodes if each.HasField("documents_in")]
    known = {each.node_id: each.documents_in for each in counted}
    return {
        each.node_id: max(0, each.documents_in - known[each.node_id]) / seconds
        for each in after.nodes
        if each.node_id in known and seconds > 0
    }


async def _print_each(looks: AsyncIterator[tuple[Any, dict[str, float]]]) -> None:
    from redrive.cli.pipeline.operate.shown import as_values

    async for found, per_second in looks:
        emit({**as_values(found), "documents_per_second": per_second})


async def _draw(looks: AsyncIterator[tuple[Any, dict[str, float]]]) -> None:
    from rich.live import Live

    from redrive.cli.tables import console

    screen = console()
    if not screen.is_terminal:
        async for found, per_second in looks:
            screen.print(_frame(found, per_second))
        return
    with Live(console=screen, auto_refresh=False, screen=True) as live:
        async for found, per_second in looks:
            live.update(_frame(found, per_second), refresh=True)


def _frame(found: Any, per_second: dict[str, float]) -> Frame:
    from rich.console import Group as Frame
    from rich.text import Text

    from redrive.cli.pipeline.operate.shown import node_rows
    from redrive.cli.plain import plain
    from redrive.cli.tables import table

    ordered = sorted(found.nodes, key=lambda node: not needs_a_look(node))
    columns, rows = node_rows(ordered, per_second)
    said = [Text(plain(text), "red", no_wrap=True, overflow="ellipsis") for text in _remarks(ordered)]
    return Frame(*said, table(f"graph version {found.graph_version}", columns, rows))


def needs_a_look(node: Any) -> bool:
    """Whether a node stands still, or has documents that an operator has to decide upon."""
    return bool(node.reason or node.dlq_depth or node.quarantine_depth)


def _remarks(nodes: list[Any]) -> Iterator[str]:
    for node in nodes:
        if node.reason:
            yield f"{node.node_id}: {node.reason}"
        elif needs_a_look(node):
            error = f", the newest {node.last_error_type}" if node.last_error_type else ""
            yield f"{node.node_id}: {node.dlq_depth} dead, {node.quarantine_depth} in quarantine{error}"
