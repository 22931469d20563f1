"""`redrive groups`: which failures are the same, and what they look like."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import AsJson, Limit, Query, Wide
from redrive.cli.output import emit, say
from redrive.cli.session import with_desk
from redrive.cli.tables import show_table
from redrive.cli.typed import typed

if TYPE_CHECKING:
    from redrive.desk.look.group import GroupView
    from redrive.desk.look.lens import LensView

_NONE = "no failed letters match"
SHOWN = 8  # characters of a group: its beginning is enough to name it
_COLUMNS = ("group", "count", "verdict", "error", "title", "last seen")
_WIDE = ("group", "count", "verdict", "error", "title", "kinds", "first seen", "last seen", "explanation", "place")
_BY_LENS = ("count", "groups", "title", "first seen", "last seen")
_By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="LENS",
        callback=typed,
        help="What to group by: fingerprint, origin, kind, category, error_type, release or tenant.",
    ),
]


def groups(
    ctx: typer.Context,
    query: Query = "",
    by: _By = "fingerprint",
    limit: Limit = 50,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Group failed letters by what went wrong, or by a lens."""
    from redrive.desk.look.group import Groups

    if by != "fingerprint":
        return _by_lens(ctx, by, query, limit, wide=wide, as_json=as_json)
    found = Groups(groups=with_desk(ctx, lambda desk: desk.groups(query, limit=limit)))
    if as_json:
        return emit(found)
    if not found.groups:
        return say(_NONE)
    if wide:
        return show_table("", _WIDE, [_wide_row(one) for one in found.groups], wide=True)
    show_table("", _COLUMNS, [(*line(one), one.last_seen_at) for one in found.groups])
    for one in found.groups:
        if one.place:
            say(f"{one.group[:SHOWN]}  at {one.place}")
    return None


def _by_lens(ctx: typer.Context, by: str, query: str, limit: int, *, wide: bool, as_json: bool) -> None:
    """Show a line for each value, and below the commands that list the letters: no column may cut them."""
    from redrive.core.query.lenses import lens_named
    from redrive.desk.look.lens import LensGroups

    lens = lens_named(by)
    found = LensGroups(by=lens, groups=with_desk(ctx, lambda desk: desk.groups(query, by=lens, limit=limit)))
    if as_json:
        return emit(found)
    if not found.groups:
        return say(_NONE)
    show_table("", (lens, *_BY_LENS), [_lens_row(one) for one in found.groups], wide=wide)
    for one in found.groups:
        say(f"redrive ls -q {shlex.quote(one.query)}")
    return None


def _lens_row(one: LensView) -> tuple[object, ...]:
    return one.value or "-", one.count, one.fingerprints, one.title, one.first_seen_at, one.last_seen_at


def line(one: GroupView) -> tuple[object, ...]:
    """Return a group as one line."""
    return one.group[:SHOWN], one.count, one.verdict, one.error_type, one.title


def _wide_row(one: GroupView) -> tuple[object, ...]:
    seen = (one.first_seen_at, one.last_seen_at)
    return one.group, one.count, one.verdict, one.error_type, one.title, one.kinds, *seen, one.explanation, one.place
