"""`redrive groups`: which failures are the same, and what they look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from redrive.cli.options import AsJson, Limit, Query, Wide
from redrive.cli.output import emit, say
from redrive.cli.session import with_desk
from redrive.cli.tables import show_table

if TYPE_CHECKING:
    from redrive.desk.group import GroupView

SHOWN = 8  # characters of a group: its beginning is enough to name it
_COLUMNS = ("group", "count", "verdict", "error", "title", "last seen")
_WIDE = ("group", "count", "verdict", "error", "title", "kinds", "first seen", "last seen", "explanation", "place")


def groups(
    ctx: typer.Context, query: Query = "", limit: Limit = 50, wide: Wide = False, as_json: AsJson = False
) -> None:
    """Group failed letters by what went wrong, biggest first."""
    from redrive.desk.group import Groups

    found = Groups(groups=with_desk(ctx, lambda desk: desk.groups(query, limit=limit)))
    if as_json:
        return emit(found)
    if not found.groups:
        return say("no failed letters match")
    if wide:
        return show_table("", _WIDE, [_wide_row(one) for one in found.groups], wide=True)
    show_table("", _COLUMNS, [(*line(one), one.last_seen_at) for one in found.groups])
    for one in found.groups:
        if one.place:
            say(f"{one.group[:SHOWN]}  at {one.place}")
    return None


def line(one: GroupView) -> tuple[object, ...]:
    """Return a group as one line."""
    return one.group[:SHOWN], one.count, one.verdict, one.error_type, one.title


def _wide_row(one: GroupView) -> tuple[object, ...]:
    seen = (one.first_seen_at, one.last_seen_at)
    return one.group, one.count, one.verdict, one.error_type, one.title, one.kinds, *seen, one.explanation, one.place
