"""`redrive stats`: the books, and what they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import AsJson, Wide
from redrive.cli.output import emit, letters, say, tell
from redrive.cli.session import with_desk
from redrive.cli.tables import moment, show_table
from redrive.core.letter.ids import short

if TYPE_CHECKING:
    from redrive.desk.look.stats import FailedWeek, Stats
    from redrive.stores.contract import Histories

STATES = ("enqueued", "pending", "in_flight", "delivered", "failed", "archived", "purged")
SPARE = "pending,in_flight,delivered,failed,archived,purged"  # left out where all of them are zero


def stats(
    ctx: typer.Context,
    weeks: Annotated[int, typer.Option(min=0, max=520, help="Count the failures of this many weeks.")] = 8,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Count everything: the books, what failed, what is stuck."""
    found = with_desk(ctx, lambda desk: desk.stats(weeks=weeks))
    if as_json:
        return emit(found)
    show_table(title(found), STATES, [tuple(found.books[name] for name in STATES)], wide=wide, spare=SPARE)
    _breakdown("queue", found.by_queue, wide=wide)
    _breakdown("kind", found.by_kind, wide=wide)
    for name, counts in (
        ("category", found.failed_by_category),
        ("policy", found.failed_by_policy),
        ("error", found.failed_by_error),
    ):
        if counts:
            say("")
            show_table("", (f"failed by {name}", "letters"), list(counts.items()), wide=wide)
    _weeks(found.failed_by_week, wide=wide)
    if alive := [(one.name, one.in_flight, one.seen_at) for one in found.workers if one.alive]:
        say("")
        show_table("", ("worker", "in flight", "seen"), alive, wide=wide)
    say("")
    for line, style in remarks(found):
        tell(line, style)
    return None


def remarks(found: Stats) -> list[tuple[str, str]]:
    """Return what an operator should know besides the numbers, what needs a look first, each with its colour."""
    states = [(one.name, one.state) for one in found.breakers if one.state != "closed"]
    lines = [(f"breaker {name}: {state}", "red" if state == "open" else "yellow") for name, state in states]
    lines += [(f"paused: queue {name}", "yellow") for name in found.paused]
    lines += [
        (f"orphaned: {letters(count)} of kind {kind} in queue {queue}; no live worker takes them from there", "yellow")
        for queue, kinds in found.orphaned.items()
        for kind, count in kinds.items()
    ]
    if found.oldest_failed is not None:
        oldest = found.oldest_failed
        when = f", failed at {moment(oldest.failed_at, wide=True)}" if oldest.failed_at else ""
        lines.append((f"oldest failed: {short(oldest.id)} ({oldest.kind}){when}", ""))
    return lines + _long_histories(found.histories)


def _long_histories(found: Histories) -> list[tuple[str, str]]:
    from redrive.stores.contract import LONG_HISTORY

    if not found.long:
        return []
    look = f"redrive ls -q 'cycles:>{LONG_HISTORY}'"
    return [(f"replayed more than {LONG_HISTORY} times: {letters(found.long)}, at most {found.largest}: {look}", "")]


def _weeks(weeks: list[FailedWeek], *, wide: bool) -> None:
    """Print how many died when, back to the oldest week that had any."""
    oldest = max((at for at, week in enumerate(weeks) if week.failed), default=-1)
    if oldest >= 0:
        say("")
        show_table("", ("failed by week", "letters"), [_week(week) for week in weeks[: oldest + 1]], wide=wide)


def _week(week: FailedWeek) -> tuple[str, str]:
    when = f"{week.weeks_ago * 7} to {week.weeks_ago * 7 + 7} days ago" if week.weeks_ago else "the last 7 days"
    return when, f"{week.failed}{'+' * week.more}"


def title(found: Stats) -> str:
    """Say whether the books balance."""
    return "the books balance" if found.balanced else "THE BOOKS DO NOT BALANCE"


def _breakdown(trait: str, counts: dict[str, dict[str, int]], *, wide: bool) -> None:
    rows = [(name, *(by_status.get(state, 0) for state in STATES)) for name, by_status in counts.items()]
    if rows:
        say("")
        show_table("", (trait, *STATES), rows, wide=wide, spare=SPARE)
