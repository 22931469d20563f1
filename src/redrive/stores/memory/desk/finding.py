"""
Reading letters: one, a page, a count, groups, tallies.

Owns finding, counting and grouping. Changes nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.core import changes
from redrive.core.letter import Status
from redrive.core.waiting import NAMED, Standing
from redrive.stores.contract import LONG_HISTORY, Group, Histories, Page, Tally, place_of
from redrive.stores.lensing import LensSums, titled
from redrive.stores.memory import ordering

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.core.letter import Letter
    from redrive.core.query import Lens, Query
    from redrive.stores.contract import LensGroup
    from redrive.stores.memory.rows import Row
    from redrive.stores.memory.transaction import Contents


def shown(letter: Letter) -> Letter:
    """Return *letter* for a caller, who may change its metadata without changing ours."""
    return replace(letter, metadata=changes.copied(letter.metadata)) if letter.metadata else letter


def seen(contents: Contents, row: Row) -> Letter:
    """Return the letter of *row* for a caller, with the number of letters it waits for."""
    waits = ordering.waits(contents.table, row)
    return shown(replace(row.letter, waits_for=waits) if waits else row.letter)


def standing(contents: Contents, letter_id: str) -> Standing | None:
    """Return what a pending letter waits for."""
    row = contents.table.row(letter_id)
    if row is None or row.letter.status is not Status.PENDING:
        return None
    others = [(other, contents.table.row(other)) for other in sorted(row.waits_for)[:NAMED]]
    return Standing(
        due_in=(row.letter.due_us - contents.now_us) / 1_000_000,
        after=tuple((other, str(found.letter.status) if found else "") for other, found in others),
        after_count=len(row.waits_for),
        earlier=ordering.goes_before(contents.table, row),
    )


def find(contents: Contents, query: Query, cursor: str | None, limit: int, *, payloads: bool) -> Page:
    """Return a page of matching letters, newest first; the cursor is the last one's seq."""
    rows = list(islice(_matching(contents, query, place_of(cursor)), limit + 1))
    more = len(rows) > limit
    letters = [seen(contents, row) for row in rows[:limit]]
    if not payloads:
        letters = [replace(letter, payload=b"") for letter in letters]
    return Page(letters, str(rows[limit - 1].seq) if more and letters else None)


def count(contents: Contents, query: Query, at_most: int) -> int:
    """Count matching letters up to *at_most*."""
    return sum(1 for _ in islice(_matching(contents, query, None), at_most))


def groups(contents: Contents, query: Query, limit: int) -> list[Group]:
    """Group the failed letters that match, biggest first."""
    members: dict[str, list[Letter]] = {}
    for row in _fitting(contents, query, contents.table.failed):
        members.setdefault(row.letter.fingerprint or "", []).append(row.letter)
    found = [_group(contents, fingerprint, letters) for fingerprint, letters in members.items()]
    return sorted(found, key=lambda group: (-group.count, group.fingerprint))[:limit]


def groups_by(contents: Contents, lens: Lens, query: Query, limit: int) -> list[LensGroup]:
    """Group the failed letters that match by what they have under *lens*, biggest first."""
    sums = LensSums(lens)
    for row in _fitting(contents, query, contents.table.failed):
        sums.add(row.letter)
    heaps = sums.biggest(limit)
    return titled(heaps, {name: seen.title for name, seen in contents.table.sightings.items()})


def _group(contents: Contents, fingerprint: str, letters: list[Letter]) -> Group:
    seen = contents.table.sightings[fingerprint]
    return Group(
        fingerprint=fingerprint,
        error_type=seen.error_type,
        title=seen.title,
        count=len(letters),
        kinds=tuple(sorted({letter.kind for letter in letters})),
        categories=tuple(sorted({letter.category or "" for letter in letters})),
        first_seen_us=seen.first_us,
        last_seen_us=seen.last_us,
    )


def tallies(contents: Contents, status: str | None = None) -> list[Tally]:
    """Return the maintained counts, all or those of one status."""
    return [
        Tally(**traits._asdict(), count=n)
        for traits, n in sorted(contents.table.tallies.items())
        if status in (None, traits.status)
    ]


def oldest_failed(contents: Contents) -> Letter | None:
    """Return the dead letter that has waited longest."""
    rows = contents.table.failed.values()
    oldest = min(rows, key=lambda row: (row.letter.failed_us or 0, row.seq), default=None)
    return None if oldest is None else shown(oldest.letter)


def histories(contents: Contents) -> Histories:
    """Return how often letters were replayed."""
    cycles = [row.letter.cycles for row in contents.table.rows.values()]
    return Histories(max(cycles, default=0), sum(n > LONG_HISTORY for n in cycles))


def _matching(contents: Contents, query: Query, before: int | None) -> Iterator[Row]:
    rows = contents.table.rows
    seqs = sorted((seq for seq in rows if before is None or seq < before), reverse=True)
    return _fitting(contents, query, {seq: rows[seq] for seq in seqs})


def _fitting(contents: Contents, query: Query, rows: dict[int, Row]) -> Iterator[Row]:
    now = contents.now_us
    return (row for row in rows.values() if query.matches(row.letter, now))
