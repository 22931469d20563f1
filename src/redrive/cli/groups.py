"""`redrive groups`: which failures are the same, and what they look like."""

from __future__ import annotations

import typer

from redrive.cli.options import AsJson, Limit, Query
from redrive.cli.output import emit, say, show_table
from redrive.cli.session import with_store

_COLUMNS = ("group", "count", "verdict", "error", "title", "kinds", "last seen")


def groups(ctx: typer.Context, query: Query = "", limit: Limit = 50, as_json: AsJson = False) -> None:
    """Group failed letters by what went wrong, biggest group first."""
    from redrive.desk import group

    found = with_store(ctx, lambda store: group.groups(store, query, limit=limit))
    if as_json:
        return emit(found)
    rows = [
        (one.group, one.count, one.verdict, one.error_type, one.title, one.kinds, one.last_seen_at)
        for one in found.groups
    ]
    show_table("", _COLUMNS, rows)
    for one in found.groups:
        say(f"{one.group[:12]}  {one.verdict}: {one.explanation}")
    if not found.groups:
        say("no failed letters match")
    return None
