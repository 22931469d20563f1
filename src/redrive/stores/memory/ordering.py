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
    from redrive.stores.memory.rows import LetterTable, Row


def order(table: LetterTable, queue: str, *, ordered: bool) -> None:
    """Keep order per key in *queue* from now on, or no longer."""
    rows = [row for row in table.rows.values() if row.letter.queue == queue]
    for row in rows:
        table.leave(row)
        row.ordered, row.first = ordered and row.letter.key is not None, False
        table.enter(row)
    for row in rows:
        stand(table, row)


def stand(table: LetterTable, row: Row) -> None:
    """Put the letter that may run now, because of *row*'s last change, into line."""
    if row.ordered:
        advance(table, row.letter.queue, row.letter.key)
    elif row.letter.status is Status.PENDING and not row.waits_for:
        _join_line(table, row)


def line_up(table: LetterTable, queue: str, key: str | None) -> None:
    """Let the oldest go first again, because a letter came back; one under way stays first."""
    for row in table.lanes[queue, key].values():
        if row.letter.status is Status.PENDING:
            row.first = False
            leave_line(table, row)


def advance(table: LetterTable, queue: str, key: str | None) -> None:
    """Let the first letter of a lane run, unless it waits for others."""
    lane = table.lanes[queue, key]
    if not lane:
        del table.lanes[queue, key]
        return
    found = _first(table, queue, key)
    if found.letter.status is Status.PENDING and not found.waits_for:
        found.first = True
        _join_line(table, found)


def waits(table: LetterTable, row: Row) -> int:
    """Return for how many others *row* waits: its `after`, and an earlier one of its key."""
    if row.letter.status is not Status.PENDING:
        return 0
    return len(row.waits_for) + (goes_before(table, row) is not None)


def goes_before(table: LetterTable, row: Row) -> str | None:
    """Return the letter of the key of *row*, pending in an ordered queue, that goes first; None if *row* does."""
    found = _first(table, row.letter.queue, row.letter.key) if row.ordered else row
    return None if found is row else found.letter.id


def _first(table: LetterTable, queue: str, key: str | None) -> Row:
    lane = table.lanes[queue, key]
    return next((row for row in lane.values() if row.first), None) or lane[min(lane)]


def free_dependents(table: LetterTable, letter_id: str) -> None:
    """Let letters that waited for *letter_id* go on: it is delivered."""
    for seq in sorted(table.dependents.pop(letter_id, ())):
        row = table.rows[seq]
        row.waits_for.discard(letter_id)
        stand(table, row)


def stranded(table: LetterTable, limit: int, queue: str | None) -> list[str]:
    """Let go the letters that run though one of their `after` is dead; return those that are to fail."""
    dead = [other for other, seqs in table.dependents.items() if seqs and _is_dead(table, other)]
    rows = ((other, table.rows[seq]) for other in dead for seq in sorted(table.dependents[other]))
    waiting = [(other, row) for other, row in rows if queue in (None, row.letter.queue)]
    for other, row in waiting:
        if row.letter.after_failure == "run":
            row.waits_for.discard(other)
            table.dependents[other].discard(row.seq)
            stand(table, row)
    failing = [row for _, row in waiting if row.letter.after_failure == "fail"]
    return list(
        dict.fromkeys(
            row.letter.id for row in failing if row.letter.status is Status.PENDING and goes_before(table, row) is None
        )
    )[:limit]


def _is_dead(table: LetterTable, letter_id: str) -> bool:
    row = table.row(letter_id)
    return row is None or row.letter.status in (Status.FAILED, Status.ARCHIVED)


def dependents(table: LetterTable, letter_id: str) -> list[str]:
    """Return the letters that wait for *letter_id*, or would after a replay."""
    letters = (table.rows[seq].letter for seq in sorted(table.dependents.get(letter_id, ())))
    return [letter.id for letter in letters if letter.status in (Status.PENDING, Status.FAILED)]


def awaited_by(table: LetterTable, row: Row) -> str | None:
    """Return a letter that waits for *row*, or would after a replay; None if there is none."""
    return next(iter(dependents(table, row.letter.id)), None)


def _join_line(table: LetterTable, row: Row) -> None:
    if not row.in_line:
        insort(table.lines[_line(row.letter)], (row.letter.due_us, row.seq))
        row.in_line = True


def leave_line(table: LetterTable, row: Row) -> None:
    """Take *row* out of the line that claims are taken from."""
    if row.in_line:
        line = table.lines[_line(row.letter)]
        del line[bisect_left(line, (row.letter.due_us, row.seq))]
        row.in_line = False


def _line(letter: Letter) -> tuple[str, str, Priority]:
    return letter.queue, letter.kind, letter.priority
