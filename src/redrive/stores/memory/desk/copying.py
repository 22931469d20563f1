"""
Letters that come from another store, or go there.

Owns reading them in the order of arrival and keeping them as they are. `rows` places a
letter that arrives, as it places every other.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.core import changes
from redrive.core.letter import Status
from redrive.stores.contract import place_of
from redrive.stores.copying import Adopted, Cargo, Handled, Kept, Seen, group_of
from redrive.stores.memory.desk import finding
from redrive.stores.memory.rows import Sighting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from redrive.stores.memory.rows import Row
    from redrive.stores.memory.transaction import Contents


class MemoryCopies:
    """Copies the letters of one contents, which *locked* gives to one caller at a time."""

    def __init__(self, locked: Callable[..., AbstractContextManager[Contents]]) -> None:
        self._locked = locked

    async def read(self, cursor: str | None, limit: int) -> Cargo:
        """Return the next letters in the order of their arrival."""
        with self._locked() as contents:
            start = place_of(cursor) or 0
            rows = list(islice((row for seq, row in contents.table.rows.items() if seq > start), limit + 1))
            more = len(rows) > limit
            return Cargo([_kept(contents, row) for row in rows[:limit]], str(rows[limit - 1].seq) if more else None)

    async def adopt(self, letters: Sequence[Kept]) -> list[Adopted]:
        """Keep these letters as they are."""
        with self._locked(ring=True) as contents:
            token = contents.next_token()
            return [_adopt(contents, each, token) for each in letters]

    async def read_handled(self, after: Handled | None, limit: int) -> list[Handled]:
        """Return the next handled keys."""
        with self._locked() as contents:
            start = ("", "") if after is None else (after.handler, after.key)
            names = sorted(name for name in contents.handled if name > start)[:limit]
            return [Handled(*name, contents.handled[name]) for name in names]

    async def adopt_handled(self, handled: Sequence[Handled]) -> int:
        """Note handled keys with their times."""
        with self._locked() as contents:
            fresh = {(each.handler, each.key): each.at_us for each in handled} | contents.handled
            new = len(fresh) - len(contents.handled)
            contents.handled.update(fresh)
            return new


def _kept(contents: Contents, row: Row) -> Kept:
    letter = finding.seen(contents, row)
    group = group_of(letter)
    seen = None if group is None else contents.table.sightings.get(group)
    return Kept(
        letter=letter,
        archived_from=row.archived_from if letter.status is Status.ARCHIVED else None,
        awaited=tuple(sorted(other if contents.table.row(other) else "" for other in row.waits_for)),
        group=None if seen is None else Seen(group or "", seen.error_type, seen.title, seen.first_us, seen.last_us),
    )


def _adopt(contents: Contents, kept: Kept, token: int) -> Adopted:
    table, letter = contents.table, kept.letter
    known = table.kept_id(letter)
    if known is not None:
        return Adopted(known, table.rows[table.seqs[known]].letter.updated_us)
    whole = replace(letter, token=token, worker=None, waits_for=0, metadata=changes.copied(letter.metadata))
    ordered = contents.queues.made(letter.queue).spec.ordered
    row = table.add(whole, ordered=ordered, waits_for=_awaited(contents, kept))
    row.archived_from = kept.archived_from or row.archived_from
    if kept.group is not None:
        _remember(contents, kept.group)
    return Adopted()


def _awaited(contents: Contents, kept: Kept) -> set[str]:
    """Return the ids it waits for; a removed letter may have any name, because no worker will deliver it."""
    gone = [other for other in kept.letter.after if other not in kept.awaited and not contents.table.row(other)]
    removed = gone[: kept.awaited.count("")]
    return {other for other in (*kept.awaited, *removed) if other and not contents.table.delivered(other)}


def _remember(contents: Contents, seen: Seen) -> None:
    known = contents.table.sightings.setdefault(
        seen.fingerprint, Sighting(seen.error_type, seen.title, seen.first_us, seen.last_us)
    )
    known.first_us, known.last_us = min(known.first_us, seen.first_us), max(known.last_us, seen.last_us)
