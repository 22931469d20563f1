"""The commands of `redrive inbox` by name. Owns nothing else, so that `redrive --help` is quick."""

from __future__ import annotations

import typer

from redrive.cli.inbox.gaps import gaps
from redrive.cli.inbox.openapi import openapi
from redrive.cli.inbox.run import run
from redrive.cli.inbox.send import send
from redrive.cli.inbox.sources import sources

app = typer.Typer(no_args_is_help=True, help="Receive webhooks, and look at their sources.")
for _command in (run, send, sources, gaps, openapi):
    app.command()(_command)
