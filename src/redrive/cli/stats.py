"""`redrive stats`: the books, and what they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from redrive.cli.options import AsJson
from redrive.cli.output import emit, say, show_table
from redrive.cli.session import with_store

if TYPE_CHECKING:
    from redrive.desk.stats import Stats

STATES = ("enqueued", "pending", "in_flight", "delivered", "failed", "archived", "purged")


def stats(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Count everything: the books by queue, kind, category and policy; the oldest failure; orphans."""
    from redrive.desk import stats as verb

    found = with_store(ctx, verb.stats)
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


def _title(found: Stats) -> str:
    return "the books balance" if found.balanced else "THE BOOKS DO NOT BALANCE"


def _breakdown(trait: str, counts: dict[str, dict[str, int]]) -> None:
    rows = [(name, *(by_status.get(state, 0) for state in STATES)) for name, by_status in counts.items()]
    if rows:
        show_table("", (trait, *STATES), rows)
