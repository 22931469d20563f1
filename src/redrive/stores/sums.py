"""
What is computed from the answers of any store.

Owns sums of tallies, the books, letters that no live worker takes, and the cursor of stores that number their rows.
Knows no store.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from redrive.core.letter import Status
from redrive.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.stores.values import Tally, WorkerBeat

_LONGEST_CURSOR = 18  # digits: a seq fits 64 bits
LIVE = (Status.PENDING, Status.IN_FLIGHT)


def place_of(cursor: str | None) -> int | None:
    """Return where a page starts; raise QueryError for what no page ended with."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= _LONGEST_CURSOR):
        message = f"cannot go on from the cursor {cursor[:40]!r}: no page ended with it; leave it out to start again"
        raise QueryError(message)
    return int(cursor)


def total(tallies: Sequence[Tally], **traits: str) -> int:
    """Sum the tallies that have all of *traits*."""
    return sum(t.count for t in tallies if all(getattr(t, name) == value for name, value in traits.items()))


def orphans(tallies: Sequence[Tally], workers: Sequence[WorkerBeat]) -> dict[tuple[str, str], int]:
    """Return how many letters wait, by queue and kind, where no live worker takes that kind from that queue."""
    alive = [beat for beat in workers if beat.alive]
    waiting: Counter[tuple[str, str]] = Counter()
    for tally in tallies:
        if tally.status == "pending" and tally.count and not any(b.handles(tally.queue, tally.kind) for b in alive):
            waiting[tally.queue, tally.kind] += tally.count
    return dict(sorted(waiting.items()))


def books(tallies: Sequence[Tally]) -> Mapping[str, int]:
    """Return the books: `enqueued` must equal the sum of all others, in any one snapshot."""
    names = ("enqueued", *(str(status) for status in Status), "purged")
    return {name: total(tallies, status=name) for name in names}
