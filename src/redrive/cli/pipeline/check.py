"""`redrive pipeline check`: every problem of a graph at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.options import AsJson
from redrive.cli.output import counted, emit, say
from redrive.cli.pipeline.extra import needs_pipeline

if TYPE_CHECKING:
    from redrive.sources.pipeline.graph.reading import Examined

GraphFile = Annotated[Path, typer.Argument(metavar="GRAPH", help="The graph, in YAML or JSON.")]


@needs_pipeline
def check(graph: GraphFile, as_json: AsJson = False) -> None:
    """Report every problem of a graph at once; exit code 1 if it cannot run."""
    from redrive.sources.pipeline.graph.problems import errors
    from redrive.sources.pipeline.graph.reading import examine_file

    examined = examine_file(graph)
    found = errors(examined.problems)
    if as_json:
        emit(_as_values(str(graph), examined))
    else:
        for problem in examined.problems:
            say(f"{problem.level}: {problem}")
        say(_verdict(examined, len(found)))
    if found:
        raise typer.Exit(1)


def _verdict(examined: Examined, found: int) -> str:
    warnings = len(examined.problems) - found
    said = f", {counted(warnings, 'warning')}" if warnings else ""
    if examined.graph is None:
        return f"{counted(found, 'error')}{said}; the graph cannot run"
    nodes, edges = len(examined.graph.nodes), len(examined.graph.edges)
    return f"the graph is right: {counted(nodes, 'node')}, {counted(edges, 'edge')}{said}"


def _as_values(name: str, examined: Examined) -> dict[str, Any]:
    from redrive.sources.pipeline.graph.names import all_topics

    graph = examined.graph
    return {
        "graph": name,
        "ok": graph is not None,
        "version": graph.version if graph else None,
        "nodes": [node.id for node in graph.nodes] if graph else [],
        "topics": sorted({topic for topic, _ in all_topics(graph)}) if graph else [],
        "problems": examined.problems,
    }
