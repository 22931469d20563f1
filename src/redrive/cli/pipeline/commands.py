"""The commands of `redrive pipeline` by name. Owns nothing else, so that `redrive --help` is quick."""

from __future__ import annotations

import typer

from redrive.cli.pipeline.check import check
from redrive.cli.pipeline.graph import graph
from redrive.cli.pipeline.operate.letters import peek, quarantine, readmit, replay
from redrive.cli.pipeline.operate.nodes import drain, nodes, pause, resume, trace
from redrive.cli.pipeline.operate.reload import reload
from redrive.cli.pipeline.operate.top import top
from redrive.cli.pipeline.run.collect import collect
from redrive.cli.pipeline.run.run import run
from redrive.cli.pipeline.send import send

app = typer.Typer(no_args_is_help=True, help="Run a graph of gRPC modules; check, draw and operate it.")
_COMMANDS = (
    (run, send, check, graph, reload, collect),
    (nodes, top, peek, replay, quarantine, readmit, pause, resume, drain, trace),
)
for _command in (each for group in _COMMANDS for each in group):
    app.command()(_command)
