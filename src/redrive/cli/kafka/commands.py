"""The commands of `redrive kafka`. Owns their names; each command has a file of its own."""

from __future__ import annotations

import typer

from redrive.cli.kafka.collect import collect
from redrive.cli.kafka.consume import consume
from redrive.cli.kafka.dlq import dlq
from redrive.cli.kafka.replay import replay
from redrive.cli.kafka.unpark import release, unpark

app = typer.Typer(no_args_is_help=True, help="Consume topics; look at and replay dead letters in Kafka.")
app.add_typer(dlq, name="dlq")
app.command()(collect)
app.command()(replay)
app.command()(unpark)
app.command(hidden=True)(release)
app.command()(consume)
