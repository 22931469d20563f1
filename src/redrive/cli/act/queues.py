"""`redrive queues`: list, pause and resume queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import AsJson, By, Limit, Reason, Wide
from redrive.cli.output import emit, say
from redrive.cli.session import opened, with_desk
from redrive.cli.tables import show_table
from redrive.cli.typed import typed

if TYPE_CHECKING:
    from redrive.desk.act.queues import QueueView

_COLUMNS = ("queue", "pending", "in flight", "failed", "paused", "reason", "ordered", "max size", "rate", "at once")
_SPARE = "in flight,paused,reason,ordered,max size,rate,at once"
Name = Annotated[str, typer.Argument(metavar="QUEUE", callback=typed, help="The queue's name.")]

app = typer.Typer(rich_markup_mode=None, help="List, pause and resume queues.")


@app.callback(invoke_without_command=True)
def default(ctx: typer.Context, wide: Wide = False, as_json: AsJson = False) -> None:
    """List queues, unless told to pause or resume one."""
    if ctx.invoked_subcommand is None:
        listing(ctx, wide=wide, as_json=as_json)


@app.command("list", hidden=True)
@app.command("ls")
def listing(ctx: typer.Context, limit: Limit = 1_000, wide: Wide = False, as_json: AsJson = False) -> None:
    """List every queue that was declared or has letters."""
    from redrive.desk.act.queues import Queues

    found = Queues(queues=with_desk(ctx, lambda desk: desk.queues())[:limit])
    if as_json:
        return emit(found)
    if not found.queues:
        return say("there are no queues yet")
    return show_table("", _COLUMNS, [_row(one) for one in found.queues], wide=wide, spare=_SPARE)


def _row(one: QueueView) -> tuple[object, ...]:
    paused = (f"by {one.paused_by}" if one.paused_by else "yes") if one.paused else ""
    limits = ("yes" if one.ordered else "", one.max_size, one.rate, one.max_in_flight)
    return one.name, one.pending, one.in_flight, one.failed, paused, one.reason, *limits


@app.command()
def pause(ctx: typer.Context, queue: Name, reason: Reason = "", by: By = "", as_json: AsJson = False) -> None:
    """Let no worker begin letters of a queue. Letters under way are finished."""
    _set(ctx, queue, paused=True, reason=reason, by=by, as_json=as_json)


@app.command()
def resume(ctx: typer.Context, queue: Name, reason: Reason = "", by: By = "", as_json: AsJson = False) -> None:
    """Let workers begin letters of a queue again."""
    _set(ctx, queue, paused=False, reason=reason, by=by, as_json=as_json)


def _set(ctx: typer.Context, queue: str, *, paused: bool, reason: str, by: str, as_json: bool) -> None:
    with opened(ctx, by=by) as session:
        verb, who = session.desk.pause if paused else session.desk.resume, session.desk.by
        session.run(verb(queue, reason=reason))
    if as_json:
        return emit({"queue": queue, "paused": paused, "by": who, "reason": reason})
    return say(f"queue {queue} is {'paused' if paused else 'open'}")
