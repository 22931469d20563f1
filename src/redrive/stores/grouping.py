"""
Failed letters put together by fingerprint.

Owns the sums, and what the maintained counts can answer alone. Knows no database.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import Letter, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from redrive.core.query import Query
    from redrive.stores.contract import Tally

_TRAITS = ("queue", "kind", "status", "category", "error_type", "group")  # what a tally knows of its letters

FORGOTTEN_AFTER = 86_400.0  # seconds without a failure, for a group without letters: a replay may soon bring it back

Counted = tuple[str, str, str, int]  # fingerprint, kind, category, how many


class Heap(msgspec.Struct, frozen=True):
    """How many letters share a fingerprint, and their kinds and categories."""

    fingerprint: str
    count: int
    kinds: tuple[str, ...]
    categories: tuple[str, ...]


def is_tallied(query: Query) -> bool:
    """Whether the maintained counts alone can answer *query*."""
    return all(term.field in _TRAITS for term in query.terms)


def by_tally(tallies: Iterable[Tally], query: Query) -> Iterator[Counted]:
    """Answer from the counts: each of them stands for letters that look alike to the query."""
    for tally in tallies:
        if tally.status == Status.FAILED and tally.count > 0 and query.matches(_alike(tally), 0):
            yield tally.fingerprint, tally.kind, tally.category, tally.count


def _alike(tally: Tally) -> Letter:
    return Letter(
        "",
        tally.queue,
        tally.kind,
        b"",
        status=Status.FAILED,
        category=tally.category,
        error_type=tally.error_type,
        fingerprint=tally.fingerprint,
    )


def biggest(counted: Iterable[Counted], limit: int) -> list[Heap]:
    """Sum up by fingerprint and return the biggest, biggest first."""
    sums: defaultdict[str, int] = defaultdict(int)
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    categories: defaultdict[str, set[str]] = defaultdict(set)
    for fingerprint, kind, category, n in counted:
        sums[fingerprint] += n
        kinds[fingerprint].add(kind)
        categories[fingerprint].add(category)
    names = sorted(sums, key=lambda fingerprint: (-sums[fingerprint], fingerprint))[:limit]
    return [Heap(name, sums[name], tuple(sorted(kinds[name])), tuple(sorted(categories[name]))) for name in names]
