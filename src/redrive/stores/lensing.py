"""
Failed letters put together under a lens.

Owns the sums, in Python for letters that are looked at one by one, and as the SQL that the SQL stores share. Knows no
table and no dialect: a store brings the columns.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from redrive.core.query.lenses import value_of
from redrive.stores.values import LensGroup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.core.letter import Letter
    from redrive.core.query import Lens


class LensHeap(NamedTuple):
    """The letters with one value, and the fingerprint that most of them have: its title is not known here."""

    value: str | None
    letters: int
    first_us: int
    last_us: int
    fingerprints: int
    top: str


# Biggest first; of two values with as many letters the smaller first, and none before any. The limit is the parameter.
SQL = """
SELECT value, CAST(sum(n) AS bigint) AS letters, {first} AS first, {last} AS last, count(*) AS fingerprints,
       max(CASE WHEN rank = 1 THEN fingerprint END) AS top
  FROM (SELECT pairs.*, row_number() OVER (PARTITION BY value ORDER BY n DESC, fingerprint) AS rank
          FROM (SELECT {value} AS value, coalesce(fingerprint, '') AS fingerprint, count(*) AS n,
                       min({first_failed}) AS first, max({last_failed}) AS last
                  FROM {letters} WHERE {where} GROUP BY 1, 2) AS pairs) AS ranked
 GROUP BY value ORDER BY letters DESC, value IS NOT NULL, value LIMIT {limit}
"""


class LensSums:
    """Letters added up one by one."""

    def __init__(self, lens: Lens) -> None:
        self._lens = lens
        self._counts: dict[str | None, Counter[str]] = {}  # letters by value and fingerprint
        self._seen: dict[str | None, tuple[int, int]] = {}

    def add(self, letter: Letter) -> None:
        """Count *letter*."""
        value = value_of(letter, self._lens)
        self._counts.setdefault(value, Counter())[letter.fingerprint or ""] += 1
        last = letter.updated_us if letter.failed_us is None else letter.failed_us
        first = last if letter.first_failed_us is None else letter.first_failed_us
        known = self._seen.get(value, (first, last))
        self._seen[value] = min(known[0], first), max(known[1], last)

    def biggest(self, limit: int) -> list[LensHeap]:
        """Return the values with the most letters, biggest first."""
        counts = self._counts
        values = sorted(counts, key=lambda value: (-counts[value].total(), value is not None, value or ""))
        return [self._heap(value, counts[value]) for value in values[:limit]]

    def _heap(self, value: str | None, counts: Counter[str]) -> LensHeap:
        top = min(counts, key=lambda fingerprint: (-counts[fingerprint], fingerprint))
        return LensHeap(value, counts.total(), *self._seen[value], len(counts), top)


def titled(heaps: Sequence[LensHeap], titles: Mapping[str, str]) -> list[LensGroup]:
    """Give each of *heaps* the title of its most frequent fingerprint."""
    return [
        LensGroup(
            value=heap.value,
            count=heap.letters,
            fingerprints=heap.fingerprints,
            title=titles.get(heap.top, ""),
            first_seen_us=heap.first_us,
            last_seen_us=heap.last_us,
        )
        for heap in heaps
    ]
