"""`redrive ls` and `redrive show`: look at letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import AsJson, Limit, Query, Wide
from redrive.cli.output import emit, say
from redrive.cli.plain import plain
from redrive.cli.session import with_desk
from redrive.cli.tables import cell, show_facts, show_table
from redrive.cli.typed import typed
from redrive.core.letter.ids import short

if TYPE_CHECKING:
    from redrive.core.letter import Letter
    from redrive.desk.look.views import LetterRow, LetterSheet

_COLUMNS = ("id", "kind", "status", "tries", "error", "updated")
_WIDE = ("id", "queue", "kind", "status", "tries", "key", "error", "category", "group", "due", "updated")
_PAYLOAD = 20_000


def ls(
    ctx: typer.Context,
    query: Query = "",
    limit: Limit = 50,
    cursor: Annotated[str | None, typer.Option(help="Where to continue; the last page names it.")] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """List letters that match, newest first."""
    listing = with_desk(ctx, lambda desk: desk.listing(query, cursor=cursor, limit=limit))
    if as_json:
        return emit(listing)
    if wide:
        show_table("", _WIDE, [_wide_row(one) for one in listing.letters], wide=True)
    elif listing.letters:
        sample_table("", listing.letters)
    if not listing.letters:
        say("no letters match")
    if listing.cursor:
        say(f"there are more: add --cursor {listing.cursor}")
    return None


def show(
    ctx: typer.Context,
    letter_id: Annotated[str, typer.Argument(metavar="ID", callback=typed, help="The letter's id.")],
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show all that is kept of a letter, payload included."""
    from redrive.desk.look.views import sheet as sheet_of

    letter = with_desk(ctx, lambda desk: desk.show(letter_id))
    sheet = sheet_of(letter)
    if as_json:
        return emit(sheet)
    show_facts((name, value) for name, value in _facts(sheet) if value not in (None, "", 0, []))
    _print_tries(sheet, wide=wide)
    if sheet.traceback:
        say(sheet.traceback, lines=True)
    _print_history(sheet, wide=wide)
    _print_payload(letter)
    return None


def sample_table(title: str, letters: list[LetterRow]) -> None:
    """Print letters, a line each."""
    show_table(title, _COLUMNS, [_row(one) for one in letters], spare="error")


def _row(one: LetterRow) -> tuple[object, ...]:
    return short(one.id), one.kind, one.status, one.attempts, _error(one), one.updated_at


def _wide_row(one: LetterRow) -> tuple[object, ...]:
    told = (one.status, one.attempts, one.key, _error(one), one.category, one.group)
    return one.id, one.queue, one.kind, *told, one.due_at, one.updated_at


def _error(one: LetterRow) -> str:
    return f"{one.error_type}: {one.last_error}" if one.error_type else ""


def _facts(sheet: LetterSheet) -> list[tuple[str, object]]:
    one = sheet.letter
    names = (
        "id",
        "kind",
        "queue",
        "status",
        "why",
        "priority",
        "key",
        "idempotency_key",
        "attempts",
        "losses",
        "cycles",
    )
    times = ("due_at", "created_at", "updated_at", "first_failed_at", "failed_at")
    kept = (
        "policy",
        "applied_policy",
        "origin",
        "handler",
        "tenant",
        "release",
        "plan",
        "generation",
        "worker",
        "waits_for",
    )
    return [
        *((name, getattr(one, name)) for name in names),
        ("error", plain(f"{one.error_type}: {one.last_error}", limit=2_000) if one.error_type else None),
        ("category", one.category),
        ("group", one.group),
        *((name, getattr(one, name)) for name in times),
        *((name, getattr(sheet, name)) for name in kept),
        ("after", sheet.after),
        ("after_failure", sheet.after_failure if sheet.after else None),
        ("headers", [f"{header.name}={header.value}" for header in sheet.headers]),
        ("metadata", sheet.metadata or None),
        ("payload_version", sheet.payload_version),
    ]


def _print_tries(sheet: LetterSheet, *, wide: bool) -> None:
    rows = [(one.attempt, one.at, one.why, one.error_type, one.category, one.delay) for one in sheet.tries]
    if rows:
        show_table("tries of this cycle", ("try", "at", "why", "error", "category", "waited s"), rows, wide=wide)


def _print_history(sheet: LetterSheet, *, wide: bool) -> None:
    rows = [
        (one.attempts, one.why, one.error_type, one.failed_at, one.replayed_at, one.replayed_by, one.reason)
        for one in sheet.failure_history
    ]
    if rows:
        columns = ("tries", "why", "error", "failed", "replayed", "by", "reason")
        show_table(f"earlier cycles ({sheet.letter.cycles})", columns, rows, wide=wide)


def _print_payload(letter: Letter) -> None:
    from redrive.desk.act.edit import sheet_for

    form = sheet_for(letter)
    say(f"payload ({cell(letter.content_type)}, {len(letter.payload)} bytes, as {form.form}):")
    say(plain(form.text, lines=True, limit=_PAYLOAD), lines=True)
