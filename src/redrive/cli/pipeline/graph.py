"""`redrive pipeline graph`: a picture of a graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.options import AsJson
from redrive.cli.output import emit, say
from redrive.cli.pipeline.check import GraphFile
from redrive.cli.pipeline.extra import needs_pipeline
from redrive.errors import SettingsError

if TYPE_CHECKING:
    from redrive.sources.pipeline.graph.picture import Tallies


@needs_pipeline
def graph(
    ctx: typer.Context,
    graph: GraphFile,
    *,
    svg: Annotated[bool, typer.Option("--svg", help="Print an SVG picture.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the SVG picture to this file.")] = None,
    counts: Annotated[
        Path | None,
        typer.Option(help="A JSON file with `nodes` and `edges`: counts on the edges, failing nodes marked."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="ADDRESS", help="Ask this engine for live counts instead of a file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show which node leads where, as text, JSON or an SVG picture."""
    from redrive.sources.pipeline.graph.picture import svg as drawn
    from redrive.sources.pipeline.graph.reading import load_graph

    read = load_graph(graph)
    if counts is not None and engine is not None:
        raise typer.BadParameter("the counts come from a file or from an engine; leave --counts or --engine out")
    if svg or out is not None:
        picture = drawn(read, _tallies(counts) if engine is None else _live(ctx, engine))
        if out is None:
            return typer.echo(picture, nl=False)
        _write(out, picture)
        return say(f"wrote {out}")
    if as_json:
        return emit({"graph": str(graph), "env": read.env, "version": read.version, **_joined(read)})
    for node in read.nodes:
        say(f"{node.id}{f' when {node.when}' if node.when else ''}")
        for edge in read.outgoing[node.id]:
            say(f"  -> {edge.target}{f' when {edge.when}' if edge.when else ''}")
    return None


def _joined(read: Any) -> dict[str, Any]:
    return {
        "nodes": [{"id": node.id, "module": node.module, "when": node.when} for node in read.nodes],
        "edges": [{"from": each.source, "to": each.target, "when": each.when} for each in read.edges],
    }


def _tallies(path: Path | None) -> Tallies | None:
    import msgspec

    from redrive.sources.pipeline.graph.picture import Tallies

    try:
        # Not strict: `redrive pipeline nodes --json` has its counts as text, as the JSON of protobuf does.
        return None if path is None else msgspec.json.decode(path.read_bytes(), type=Tallies, strict=False)
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError([f"cannot read the counts in {str(path)!r}: {error}"]) from None


def _live(ctx: typer.Context, engine: str) -> Tallies:
    """Return the counts of *engine*; dead letters and quarantine are what waits there now."""
    from redrive.cli.pipeline.operate.asking import asked
    from redrive.cli.pipeline.operate.shown import known
    from redrive.sources.pipeline.graph.picture import EdgeTally, NodeTally, Tallies
    from redrive.sources.pipeline.protos.admin_pb2 import ListNodesRequest, NodeState

    found = asked(ctx, None, engine, None, lambda desk: desk.list_nodes(ListNodesRequest()))
    nodes = [
        NodeTally(
            node_id=each.node_id, state=NodeState.Name(each.state), dead_letters=each.dlq_depth,
            quarantined=each.quarantine_depth, documents_in=known(each, "documents_in"),
        )
        for each in found.nodes
    ]  # fmt: skip
    edges = [EdgeTally(edge_id=each.edge_id, sent=known(each, "sent")) for each in found.edges]
    return Tallies(nodes=nodes, edges=edges)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise SettingsError([f"cannot write the picture to {str(path)!r}: {error.strerror}"]) from None
