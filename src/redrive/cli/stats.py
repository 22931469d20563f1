"""`redrive stats`: the books, and what they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.options import AsJson
from redrive.cli.output import emit, say, show_table
from redrive.cli.session import with_store

if TYPE_CHECKING:
    from redrive.desk.stats import FailedWeek, Stats

STATES = ("enqueued", "pending", "in_flight", "delivered", "failed", "archived", "purged")


def stats(
    ctx: typer.Context,
    weeks: Annotated[int, typer.Option(min=0, max=520, help="Look back on so many weeks of failures.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Count everything: the books by queue, kind, category and policy; failures by week; the oldest one; orphans."""
    from redrive.desk import stats as verb

    found = with_store(ctx, lambda store: verb.stats(store, weeks=weeks))
    if as_json:
        return emit(found)
    show_table(_title(found), STATES, [tuple(found.books[name] for name in STATES)])
    _breakdown("queue", found.by_queue)
    _breakdown("kind", found.by_kind)
    for name, counts in (
        ("category", found.failed_by_category),
        ("policy", found.failed_by_policy),
        ("error", found.failed_by_error),
    ):
        if counts:
            show_table("", (f"failed by {name}", "letters"), list(counts.items()))
    if any(week.failed for week in found.failed_by_week):
        show_table("", ("failed by week", "letters"), [_week(week) for week in found.failed_by_week])
    if alive := [(one.name, one.in_flight, one.seen_at) for one in found.workers if one.alive]:
        show_table("", ("worker", "in flight", "seen"), alive)
    for line in remarks(found):
        say(line)
    return None


def remarks(found: Stats) -> list[str]:
    """Return what an operator should know besides the numbers."""
    lines = []
    if found.oldest_failed is not None:
        oldest = found.oldest_failed
        lines.append(f"oldest failed: {oldest.id} ({oldest.kind}), failed at {oldest.failed_at}")
    lines += [
        f"orphaned: {count} letters of kind {kind} in queue {queue}; no live worker takes them from there"
        for queue, kinds in found.orphaned.items()
        for kind, count in kinds.items()
    ]
    lines += [f"paused: queue {name}" for name in found.paused]
    lines += [f"breaker {one.name}: {one.state}" for one in found.breakers if one.state != "closed"]
    return lines


def _week(week: FailedWeek) -> tuple[str, str]:
    when = f"{week.weeks_ago * 7} to {week.weeks_ago * 7 + 7} days ago" if week.weeks_ago else "the last 7 days"
    return when, f"{week.failed}{'+' * week.more}"


def _title(found: Stats) -> str:
    return "the books balance" if found.balanced else "THE BOOKS DO NOT BALANCE"


def _breakdown(trait: str, counts: dict[str, dict[str, int]]) -> None:
    rows = [(name, *(by_status.get(state, 0) for state in STATES)) for name, by_status in counts.items()]
    if rows:
        show_table("", (trait, *STATES), rows)
