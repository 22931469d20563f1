"""`redrive queues`: list, pause and resume queues."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.options import AsJson, By, Reason
from redrive.cli.output import emit, say, show_table
from redrive.cli.session import author, with_store
from redrive.cli.typed import typed

Name = Annotated[str, typer.Argument(metavar="QUEUE", callback=typed, help="The queue's name.")]
_COLUMNS = ("queue", "paused", "pending", "in flight", "failed", "ordered", "max size", "rate", "reason")

app = typer.Typer(rich_markup_mode=None, help="List, pause and resume queues.")


@app.callback(invoke_without_command=True)
def default(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List queues, unless told to pause or resume one."""
    if ctx.invoked_subcommand is None:
        listing(ctx, as_json=as_json)


@app.command("list")
def listing(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List every queue that was declared or has letters."""
    from redrive.desk import queues

    found = with_store(ctx, queues.queues)
    if as_json:
        return emit(found)
    rows = [
        (
            one.name,
            f"by {one.paused_by}" if one.paused else "",
            one.pending,
            one.in_flight,
            one.failed,
            "yes" if one.ordered else "",
            one.max_size,
            one.rate,
            one.reason,
        )
        for one in found.queues
    ]
    return show_table("", _COLUMNS, rows)


@app.command()
def pause(ctx: typer.Context, queue: Name, reason: Reason = "", by: By = "", as_json: AsJson = False) -> None:
    """Let no worker begin letters of a queue; letters under way are finished."""
    _set(ctx, queue, paused=True, reason=reason, by=by, as_json=as_json)


@app.command()
def resume(ctx: typer.Context, queue: Name, reason: Reason = "", by: By = "", as_json: AsJson = False) -> None:
    """Let workers begin letters of a queue again."""
    _set(ctx, queue, paused=False, reason=reason, by=by, as_json=as_json)


def _set(ctx: typer.Context, queue: str, *, paused: bool, reason: str, by: str, as_json: bool) -> None:
    from redrive.desk import queues

    verb, who = queues.pause if paused else queues.resume, author(ctx, by)
    with_store(ctx, lambda store: verb(store, queue, by=who, reason=reason))
    if as_json:
        return emit({"queue": queue, "paused": paused, "by": who, "reason": reason})
    return say(f"queue {queue} is {'paused' if paused else 'open'}")
