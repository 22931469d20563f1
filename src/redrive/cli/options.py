"""
The options that commands share, each written once.

Owns their names and help texts; knows no command.
"""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.typed import typed, typed_all, typed_query

AsJson = Annotated[bool, typer.Option("--json", help="Print the documented JSON instead of a table.")]
Wide = Annotated[bool, typer.Option("--wide", "-w", help="All columns, nothing cut, however long the lines.")]
Query = Annotated[
    str,
    typer.Option("--query", "-q", callback=typed_query, help="Which letters, such as 'status:failed kind:order.*'."),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")]
Reason = Annotated[str, typer.Option("--reason", callback=typed, help="Why; kept in the audit log.")]
By = Annotated[str, typer.Option("--by", callback=typed, help="Who acts; user@host if not given.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", callback=typed_all, help="Letters by id, all or none.")]
Group = Annotated[str, typer.Option("--group", callback=typed, help="Only this group of failures.")]
Rate = Annotated[float | None, typer.Option("--rate", help="At most so many letters a second.")]
Canary = Annotated[int | None, typer.Option("--canary", min=1, help="Only so many letters, to see how they do.")]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until the letters came to rest; exit code 1 unless none failed again.")
]
WaitSeconds = Annotated[
    float | None, typer.Option("--wait-seconds", min=0, help="Wait at most so long (60 s if not given).")
]
Resume = Annotated[
    str, typer.Option("--resume", metavar="PLAN", callback=typed, help="Go on with a plan that was interrupted.")
]
