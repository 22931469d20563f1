"""`redrive pipeline nodes` and `trace`, `pause`, `resume` and `drain`: how the nodes do, and whether they move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.options import AsJson, By, Reason
from redrive.cli.output import emit, note, say
from redrive.cli.pipeline.extra import needs_pipeline
from redrive.cli.pipeline.operate.asking import DEFAULT_ENGINE, EngineOption, GraphOption, ServersOption, asked
from redrive.cli.pipeline.operate.letter_options import NodeArgument
from redrive.cli.session import author

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Within = Annotated[float, typer.Option("--within", min=0.1, help="Look for at most this many seconds.")]


@needs_pipeline
def nodes(
    ctx: typer.Context, *, graph: GraphOption = None, engine: EngineOption = DEFAULT_ENGINE,
    servers: ServersOption = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show what waits at each node, how it does, and its oldest dead letter."""
    from redrive.cli.pipeline.operate.shown import as_values, node_notes, node_rows
    from redrive.cli.tables import show_table
    from redrive.sources.pipeline.protos.admin_pb2 import ListNodesRequest

    found = asked(ctx, graph, engine, servers, lambda desk: desk.list_nodes(ListNodesRequest()))
    if as_json:
        return emit(as_values(found))
    show_table("", *node_rows(found.nodes))
    for line in node_notes(found.nodes):
        note(line)
    return None


@needs_pipeline
def trace(
    ctx: typer.Context, wanted: Annotated[str, typer.Argument(metavar="ID", help="Of a stream, or of a document.")],
    *, within: Within = 10.0, graph: GraphOption = None, engine: EngineOption = DEFAULT_ENGINE,
    servers: ServersOption = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show where a document is, how it got there, and where it would go from here."""
    from redrive.cli.pipeline.operate.shown import as_values, branch_lines
    from redrive.sources.pipeline.protos.admin_pb2 import TraceRequest

    request = TraceRequest(stream_id=wanted)
    request.within.FromMilliseconds(int(within * 1000))
    found = asked(ctx, graph, engine, servers, lambda desk: desk.trace(request))
    if as_json:
        return emit(as_values(found))
    for line in branch_lines(found.branches):
        say(line)
    if not found.branches:
        say(f"no topic of the graph has {wanted}")
    return None if found.complete else note("the time was over before every topic was read; try a longer --within")


@needs_pipeline
def pause(
    ctx: typer.Context, node: NodeArgument, *, reason: Reason = "", by: By = "", graph: GraphOption = None,
    engine: EngineOption = DEFAULT_ENGINE, servers: ServersOption = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Let a node process nothing until it is resumed; its documents stay in its topic."""
    from redrive.sources.pipeline.protos.admin_pb2 import PauseRequest

    request = PauseRequest(node_id=node, reason=reason, actor=author(ctx, by))
    _tell(asked(ctx, graph, engine, servers, lambda desk: desk.pause(request)), "is paused", as_json=as_json)


@needs_pipeline
def resume(
    ctx: typer.Context, node: NodeArgument, *, reason: Reason = "", by: By = "", graph: GraphOption = None,
    engine: EngineOption = DEFAULT_ENGINE, servers: ServersOption = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Let a paused node go on, and the nodes that were paused to drain it."""
    from redrive.sources.pipeline.protos.admin_pb2 import ResumeRequest

    request = ResumeRequest(node_id=node, reason=reason, actor=author(ctx, by))
    _tell(asked(ctx, graph, engine, servers, lambda desk: desk.resume(request)), "goes on", as_json=as_json)


@needs_pipeline
def drain(
    ctx: typer.Context, node: NodeArgument, *, reason: Reason = "", by: By = "", graph: GraphOption = None,
    engine: EngineOption = DEFAULT_ENGINE, servers: ServersOption = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Pause what sends to a node, wait until its topic is empty, and pause it."""
    from redrive.sources.pipeline.protos.admin_pb2 import DrainRequest

    request = DrainRequest(node_id=node, reason=reason, actor=author(ctx, by))

    async def work(desk: Any) -> Any:
        return await _shown(desk.drain(request), quiet=as_json)

    _tell(asked(ctx, graph, engine, servers, work), "has drained and is paused", as_json=as_json)


async def _shown(statuses: AsyncIterator[Any], *, quiet: bool) -> Any:
    last, told = None, -1
    async for last in statuses:
        if not quiet and last.depth != told:
            say(f"{last.node_id}: {last.depth} left")
            told = last.depth
    return last


def _tell(status: Any, became: str, *, as_json: bool) -> None:
    from redrive.cli.pipeline.operate.shown import as_values

    if as_json:
        emit(as_values(status))
    else:
        say(f"{status.node_id} {became}; {status.depth} documents wait in its topic")
