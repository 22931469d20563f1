"""`redrive subscriptions`: which handlers get their own letter of which events."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.options import AsJson, By, Limit, Wide
from redrive.cli.output import emit, say
from redrive.cli.session import with_desk
from redrive.cli.tables import show_table

Event = Annotated[str, typer.Argument(metavar="EVENT", help="The kind of the events.")]
Handler = Annotated[str, typer.Argument(metavar="HANDLER", help="The kind of the letters made of them.")]
Queue = Annotated[str, typer.Option(help="The queue of the letters made of them.")]

app = typer.Typer(rich_markup_mode=None, help="List, add and remove subscriptions to events.")


@app.callback(invoke_without_command=True)
def default(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List subscriptions, unless told to add or remove one."""
    if ctx.invoked_subcommand is None:
        listing(ctx, as_json=as_json)


@app.command("list", hidden=True)
@app.command("ls")
def listing(ctx: typer.Context, limit: Limit = 1_000, wide: Wide = False, as_json: AsJson = False) -> None:
    """List every subscription."""
    from redrive.desk.act.subscriptions import Subscriptions

    found = Subscriptions(subscriptions=with_desk(ctx, lambda desk: desk.subscriptions())[:limit])
    if as_json:
        return emit(found)
    rows = [(one.event, one.handler, one.queue) for one in found.subscriptions]
    if not rows:
        return say("there are no subscriptions")
    return show_table("", ("event", "handler", "queue"), rows, wide=wide)


@app.command()
def add(
    ctx: typer.Context, event: Event, handler: Handler, queue: Queue = "default", by: By = "", as_json: AsJson = False
) -> None:
    """Let every event of a kind give a letter to a handler, from now on."""
    fresh = with_desk(ctx, lambda desk: desk.subscribe(event, handler, queue=queue), by=by)
    if as_json:
        return emit({"event": event, "handler": handler, "subscribed": True, "changed": fresh})
    return say(f"{handler} {'now gets' if fresh else 'gets already'} a letter of every {event}")


@app.command()
def remove(ctx: typer.Context, event: Event, handler: Handler, by: By = "", as_json: AsJson = False) -> None:
    """Make no more letters of such events for a handler. Those that were made stay."""
    gone = with_desk(ctx, lambda desk: desk.unsubscribe(event, handler), by=by)
    if as_json:
        return emit({"event": event, "handler": handler, "subscribed": False, "changed": gone})
    return say(f"{handler} {'gets no more letters' if gone else 'got no letters'} of {event}")
