"""
Letters that come from another store, or go there.

Owns reading them in the order of arrival and keeping them as they are, in any status. Knows no other
store.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import apsw
from msgspec.structs import asdict

from redrive.core.letter import Status
from redrive.core.letter.tallies import Trait, trait_of
from redrive.failpoints import hit
from redrive.stores import columns
from redrive.stores.contract import place_of
from redrive.stores.copying import Adopted, Cargo, Handled, Kept, Seen, group_of
from redrive.stores.sqlite import failing, ordering, rows, writing
from redrive.stores.sqlite.sql import statements

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from redrive.core.letter import Letter
    from redrive.stores.sqlite.transaction import Transaction

_SQL = statements("copying", all=rows.ALL)
_NO_TEXT = "a name or a text of it has a lone surrogate, which is no text, and a SQLite file cannot hold it"


class SqliteCopies:
    """Copies the letters of one file."""

    def __init__(self, read: Callable[..., Awaitable[Any]], write: Callable[..., Awaitable[Any]]) -> None:
        self._read, self._write = read, write

    async def read(self, cursor: str | None, limit: int) -> Cargo:
        """Return the next letters in the order of their arrival."""
        found: Cargo = await self._read(_cargo, place_of(cursor) or 0, limit)
        return found

    async def adopt(self, letters: Sequence[Kept]) -> list[Adopted]:
        """Keep these letters as they are, in one transaction."""
        hit("adopt.before")
        adopted: list[Adopted] = await self._write(_adopt_all, letters)
        hit("adopt.after")
        return adopted

    async def read_handled(self, after: Handled | None, limit: int) -> list[Handled]:
        """Return the next handled keys."""
        found: list[Handled] = await self._read(_handled, after or Handled("", ""), limit)
        return found

    async def adopt_handled(self, handled: Sequence[Handled]) -> int:
        """Note handled keys with their times."""
        new: int = await self._write(_adopt_handled, handled)
        return new


# ---------------------------------------------------------------------- out


def _cargo(connection: apsw.Connection, start: int, limit: int) -> Cargo:
    found: list[tuple[Any, ...]] = connection.execute(_SQL["cargo"], (start, limit + 1)).fetchall()
    page = found[:limit]
    awaited = _awaited_by(connection, [row[0] for row in page])
    kept = [_kept(connection, row, awaited[row[0]]) for row in page]
    return Cargo(kept, str(page[-1][0]) if len(found) > limit and page else None)


def _awaited_by(connection: apsw.Connection, seqs: list[int]) -> defaultdict[int, list[str]]:
    """Return by seq the ids of the letters that others wait for; a removed letter has none."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    if seqs:
        for seq, letter_id in connection.execute(_SQL["awaited"], (apsw.carray(array("q", seqs)),)):
            found[seq].append(letter_id)
    return found


def _kept(connection: apsw.Connection, row: tuple[Any, ...], awaited: list[str]) -> Kept:
    letter = rows.letter_of(connection, row[:-1])
    archived_from = Status(row[-1]) if letter.status is Status.ARCHIVED else None
    return Kept(
        letter=letter, archived_from=archived_from, awaited=tuple(awaited), group=_seen(connection, group_of(letter))
    )


def _seen(connection: apsw.Connection, fingerprint: str | None) -> Seen | None:
    row = connection.execute(_SQL["group"], (fingerprint,)).fetchone()
    return None if row is None else Seen(*row)


def _handled(connection: apsw.Connection, after: Handled, limit: int) -> list[Handled]:
    return [Handled(*row) for row in connection.execute(_SQL["handled"], (after.handler, after.key, limit))]


# ---------------------------------------------------------------------- in


def _adopt_all(transaction: Transaction, letters: Sequence[Kept]) -> list[Adopted]:
    transaction.wakes = True
    transaction.insert_arrivals()
    token = transaction.next_token()
    adopted = [_adopt(transaction, each, token) for each in letters]
    hit("adopt.inside")
    return adopted


def _adopt(transaction: Transaction, kept: Kept, token: int) -> Adopted:
    letter = kept.letter
    if not _is_text(kept):
        return Adopted(problem=_NO_TEXT)
    pending = letter.status is Status.PENDING
    lane = ordering.lane_of(transaction, letter.queue, letter.key) if pending else ordering.UNORDERED
    on_seqs = _needed(transaction, kept.awaited)
    seq = transaction.next_seq()
    start = writing.NewRow(seq, token, len(on_seqs) + (lane == ordering.BEHIND), lane)
    if not writing.insert(transaction, letter, start, kept.archived_from):
        return _kept_already(transaction, letter)
    _add_rest(transaction, kept, seq, on_seqs)
    transaction.tally(Trait(letter.queue, letter.kind, "enqueued"), 1)
    transaction.tally(trait_of(letter), 1)
    return Adopted()


def _is_text(kept: Kept) -> bool:
    """Whether a SQLite file can hold all of it: lone surrogates have no UTF-8."""
    try:
        columns.encode(({**asdict(kept.letter), "payload": b""}, kept.group))
    except UnicodeEncodeError:
        return False
    return True


def _needed(transaction: Transaction, awaited: Sequence[str]) -> list[int]:
    """Return the seqs of the letters it must wait for; a letter that is not here gets a seq that no row ever has."""
    found = [transaction.sql(_SQL["find"], (each,)).fetchone() for each in awaited]
    seqs = [-n if row is None else int(row[0]) for n, row in enumerate(found, 1) if row is None or _runs(row[1])]
    return list(dict.fromkeys(seqs))


def _runs(status: str) -> bool:
    return status != Status.DELIVERED


def _add_rest(transaction: Transaction, kept: Kept, seq: int, on_seqs: Sequence[int]) -> None:
    """Add what stands in other tables."""
    ordering.wait_for(transaction, seq, on_seqs, kept.letter.after_failure)
    if kept.group is not None:
        transaction.sql(
            _SQL["adopt_group"],
            (kept.group.fingerprint, kept.group.error_type, kept.group.title, kept.group.first_us, kept.group.last_us),
        )
    if group_of(kept.letter) is not None:
        failing.make_searchable(transaction, [seq], kept.letter.last_error or "", again=False)


def _kept_already(transaction: Transaction, letter: Letter) -> Adopted:
    names = (letter.id, letter.queue, letter.kind, letter.idempotency_key, letter.unique_in)
    letter_id, updated_us = rows.the_row(transaction.connection, _SQL["kept_already"], names)
    return Adopted(letter_id, updated_us)


def _adopt_handled(transaction: Transaction, handled: Sequence[Handled]) -> int:
    before = transaction.connection.total_changes()
    told = [(each.handler, each.key, each.at_us) for each in handled]
    transaction.connection.executemany(_SQL["adopt_handled"], told)
    return transaction.connection.total_changes() - before
