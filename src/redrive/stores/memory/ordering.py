"""
Letters that wait for other letters: order per key, and `after`.

Owns which letter of a key goes first, and who stands in the lines that claims are taken from. Knows no clock and
not why a letter moves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from redrive.core.letter import Status

if TYPE_CHECKING:
    from redrive.core.letter import Letter, Priority
    from redrive.stores.memory.rows import Row, Shelf


def order(shelf: Shelf, queue: str, *, ordered: bool) -> None:
    """Keep order per key in *queue* from now on, or no longer."""
    rows = [row for row in shelf.rows.values() if row.letter.queue == queue]
    for row in rows:
        shelf.leave(row)
        row.ordered, row.first = ordered and row.letter.key is not None, False
        shelf.enter(row)
    for row in rows:
        stand(shelf, row)


def stand(shelf: Shelf, row: Row) -> None:
    """Put the letter that may run now, because of *row*'s last change, into line."""
    if row.ordered:
        advance(shelf, row.letter.queue, row.letter.key)
    elif row.letter.status is Status.PENDING and not row.waits_for:
        _join_line(shelf, row)


def line_up(shelf: Shelf, queue: str, key: str | None) -> None:
    """Let the oldest go first again, because a letter came back; one under way stays first."""
    for row in shelf.lanes[queue, key].values():
        if row.letter.status is Status.PENDING:
            row.first = False
            leave_line(shelf, row)


def advance(shelf: Shelf, queue: str, key: str | None) -> None:
    """Let the first letter of a lane run, unless it waits for others."""
    lane = shelf.lanes[queue, key]
    if not lane:
        del shelf.lanes[queue, key]
        return
    found = _first(shelf, queue, key)
    if found.letter.status is Status.PENDING and not found.waits_for:
        found.first = True
        _join_line(shelf, found)


def waits(shelf: Shelf, row: Row) -> int:
    """Return for how many others *row* waits: its `after`, and an earlier one of its key."""
    if row.letter.status is not Status.PENDING:
        return 0
    return len(row.waits_for) + (goes_before(shelf, row) is not None)


def goes_before(shelf: Shelf, row: Row) -> str | None:
    """Return the letter of the key of *row*, pending in an ordered queue, that goes first; None if *row* does."""
    found = _first(shelf, row.letter.queue, row.letter.key) if row.ordered else row
    return None if found is row else found.letter.id


def _first(shelf: Shelf, queue: str, key: str | None) -> Row:
    lane = shelf.lanes[queue, key]
    return next((row for row in lane.values() if row.first), None) or lane[min(lane)]


def free_dependents(shelf: Shelf, letter_id: str) -> None:
    """Let letters that waited for *letter_id* go on: it is delivered."""
    for seq in sorted(shelf.dependents.pop(letter_id, ())):
        row = shelf.rows[seq]
        row.waits_for.discard(letter_id)
        stand(shelf, row)


def _join_line(shelf: Shelf, row: Row) -> None:
    if not row.in_line:
        insort(shelf.lines[_line(row.letter)], (row.letter.due_us, row.seq))
        row.in_line = True


def leave_line(shelf: Shelf, row: Row) -> None:
    """Take *row* out of the line that claims are taken from."""
    if row.in_line:
        line = shelf.lines[_line(row.letter)]
        del line[bisect_left(line, (row.letter.due_us, row.seq))]
        row.in_line = False


def _line(letter: Letter) -> tuple[str, str, Priority]:
    return letter.queue, letter.kind, letter.priority
