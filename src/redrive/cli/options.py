"""
The options that commands share, each written once.

Owns their names and help texts; knows no command.
"""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.typed import typed, typed_all, typed_query

AsJson = Annotated[bool, typer.Option("--json", help="Print the documented JSON instead of a table.")]
Wide = Annotated[bool, typer.Option("--wide", "-w", help="Show all columns, and shorten nothing.")]
Query = Annotated[
    str,
    typer.Option(
        "--query", "-q", callback=typed_query, help="Letters that match, such as 'status:failed kind:order.*'."
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="List at most this many.")]
Reason = Annotated[str, typer.Option("--reason", callback=typed, help="The reason, for the audit log.")]
By = Annotated[str, typer.Option("--by", callback=typed, help="Your name in the audit log; default: user@host.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="ID", callback=typed_all, help="Letters by id: all of them or none.")
]
Group = Annotated[str, typer.Option("--group", callback=typed, help="Letters of this group of failures.")]
Rate = Annotated[float | None, typer.Option("--rate", help="Act on at most this many letters a second.")]
Canary = Annotated[int | None, typer.Option("--canary", min=1, help="Act on at most this many letters, as a trial.")]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait", help="Wait until the letters are delivered or failed; exit code 1 unless all were delivered."
    ),
]
WaitSeconds = Annotated[
    float | None, typer.Option("--wait-seconds", min=0, help="Wait at most this many seconds (default: 60).")
]
Detach = Annotated[bool, typer.Option("--detach", help="Do not wait: a worker carries out the plan.")]
Resume = Annotated[
    str, typer.Option("--resume", metavar="PLAN", callback=typed, help="Continue a plan that was interrupted.")
]
