"""
Retention: letters and plans past their time, and handled keys and groups that have no letter any more.

Owns how far it has looked: each call looks at some letters, and the next one goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core import changes
from redrive.core.letter import Status
from redrive.core.plan import is_over
from redrive.stores.grouping import FORGOTTEN_AFTER
from redrive.stores.memory import ordering

if TYPE_CHECKING:
    from redrive.core.letter import Letter
    from redrive.stores.contract import Retention
    from redrive.stores.memory.transaction import Contents


def retain(contents: Contents, retention: Retention, limit: int) -> int:
    """Look at the next *limit* letters, round and round, and remove those past their time; forget handled keys."""
    seqs = sorted(seq for seq in contents.table.rows if seq > contents.retained)[:limit]
    contents.retained = seqs[-1] if len(seqs) == limit else 0
    looked_at = map(contents.table.rows.__getitem__, seqs)
    over = [row for row in looked_at if _is_over(row.letter, retention, contents.now_us)]
    over = [row for row in over if ordering.awaited_by(contents.table, row) is None]
    for row in over:
        contents.table.remove(row)
    _forget_groups(contents)
    if retention.handled is not None:
        _forget_handled(contents, retention.handled)
    if retention.plans is not None:
        _forget_plans(contents, retention.plans)
    return len(over)


def _forget_groups(contents: Contents) -> None:
    """Forget groups without letters that were not seen lately."""
    end_us = contents.now_us - changes.span(FORGOTTEN_AFTER)
    old = {name for name, seen in contents.table.sightings.items() if seen.last_us <= end_us}
    if old:
        rows = contents.table.rows.values()
        old -= {row.letter.fingerprint for row in rows if row.letter.status in (Status.FAILED, Status.ARCHIVED)}
    for name in old:
        del contents.table.sightings[name]


def _forget_handled(contents: Contents, seconds: float) -> None:
    """Forget keys that were handled long ago and have no letter any more."""
    old = [each for each, at in contents.handled.items() if contents.now_us - at >= changes.span(seconds)]
    kept = {key for row in contents.table.rows.values() for key in (row.letter.id, row.letter.idempotency_key)}
    for handler, key in old:
        if key not in kept:
            del contents.handled[handler, key]


def _forget_plans(contents: Contents, seconds: float) -> None:
    """Forget plans that ended long ago."""
    before_us = contents.now_us - changes.span(seconds)
    for plan in [plan for plan in contents.plans.values() if is_over(plan, before_us)]:
        del contents.plans[plan.id]


def _is_over(letter: Letter, retention: Retention, now: int) -> bool:
    keep: dict[Status, float | None] = {
        Status.DELIVERED: retention.delivered,
        Status.ARCHIVED: retention.archived,
        Status.FAILED: retention.failed,
    }
    seconds = keep.get(letter.status)
    return seconds is not None and now - letter.updated_us >= changes.span(seconds)
