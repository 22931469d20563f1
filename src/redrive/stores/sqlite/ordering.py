"""
Letters that wait for other letters: order per key, and `after`.

Owns `held`, `lane` and the table of waits. A letter runs only when it is pending, due
and held by nothing, so a claim never has to look at those that wait.
Knows no reason why a letter came to rest: the caller says that it did, and the letters that waited for it may run.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import apsw

from redrive.stores.columns import AFTER_FAILURE
from redrive.stores.sqlite.sql import statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.stores.sqlite.transaction import Transaction

UNORDERED, FIRST, BEHIND = 0, 1, 2
_SQL = statements("ordering")


def lane_of(transaction: Transaction, queue: str, key: str | None) -> int:
    """Return where a letter of *key* would stand in *queue* now."""
    if key is None or not transaction.queue(queue).ordered:
        return UNORDERED
    return BEHIND if _lane_is_busy(transaction, queue, key) else FIRST


def _lane_is_busy(transaction: Transaction, queue: str, key: str) -> bool:
    return transaction.sql(_SQL["busy"], (queue, key)).fetchone() is not None


def first(connection: apsw.Connection, queue: str, key: str) -> str | None:
    """Return the letter of a lane that goes first."""
    row = connection.execute(_SQL["first"], (queue, key)).fetchone()
    return None if row is None else str(row[0])


def advance(transaction: Transaction, queue: str, key: str) -> None:
    """Let the oldest letter of a lane go first: the one before it came to rest."""
    row = transaction.sql(_SQL["oldest"], (queue, key)).fetchone()
    if row is not None:
        transaction.sql(_SQL["go_first"], row)


def line_up(transaction: Transaction, queue: str, key: str) -> None:
    """Put a lane in order again, the oldest first, because letters came back into it; one under way stays first."""
    for before, (seq, lane, _) in enumerate(transaction.sql(_SQL["lane"], (queue, key)).fetchall()):
        wanted = BEHIND if before else FIRST
        if lane != wanted:
            transaction.sql(_SQL["stand"], (wanted, seq))


def come_back(transaction: Transaction, seqs: Sequence[int]) -> None:
    """Let letters that come back from rest wait for their `after` alone: what held them by their key then is over."""
    transaction.connection.executemany(_SQL["come_back"], [(seq,) for seq in seqs])


def wait_for(transaction: Transaction, seq: int, on_seqs: Sequence[int], after_failure: str) -> None:
    """Note that letter *seq* waits for *on_seqs*, and what it does when one of them is dead."""
    failure = AFTER_FAILURE[after_failure]
    transaction.connection.executemany(_SQL["wait_for"], [(on_seq, seq, failure) for on_seq in on_seqs])


def stranded(transaction: Transaction, limit: int, queue: str | None) -> list[str]:
    """Let go the letters that run though one of their `after` is dead; return those that are to fail."""
    over = transaction.sql(_SQL["runs_after_dead"], (limit, queue)).fetchall()
    transaction.connection.executemany(_SQL["wait_no_longer"], over)
    transaction.connection.executemany(_SQL["let_go"], [(seq,) for _, seq in over])
    transaction.wakes = transaction.wakes or bool(over)
    return [str(letter_id) for (letter_id,) in transaction.sql(_SQL["fails_after_dead"], (limit, queue)).fetchall()]


def any_stranded(connection: apsw.Connection, queue: str | None) -> bool:
    """Whether `stranded` would find a letter; readers ask, so that a look takes no lock for writing."""
    asked = (_SQL["runs_after_dead"], _SQL["fails_after_dead"])
    return any(connection.execute(sql, (1, queue)).fetchone() for sql in asked)


def dependents(connection: apsw.Connection, letter_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return who waits for whom."""
    found = ((each, connection.execute(_SQL["dependents"], (each,)).fetchall()) for each in dict.fromkeys(letter_ids))
    return [(each, str(other)) for each, rows in found for (other,) in rows]


def awaited_by(transaction: Transaction, seq: int) -> str | None:
    """Return a letter that waits for *seq*, or would after a replay; None if there is none."""
    row = transaction.sql(_SQL["awaited_by"], (seq,)).fetchone()
    return None if row is None else str(row[0])


_ANY_WAITS = _SQL["any_waits"]  # asked with every delivery


def delivered(transaction: Transaction, seqs: Sequence[int]) -> None:
    """Let go those who waited for *seqs*."""
    if transaction.sql(_ANY_WAITS).fetchone() is None:
        return
    ended = apsw.carray(array("q", seqs))
    waiting = transaction.sql(_SQL["waiting"], (ended,)).fetchall()
    transaction.connection.executemany(_SQL["let_go"], waiting)
    transaction.sql(_SQL["forget_waits"], (ended,))


def order(transaction: Transaction, queue: str) -> None:
    """*queue* keeps order from now on: line up its unfinished letters by key."""
    transaction.sql(_SQL["order"], (queue,))
    transaction.sql(_SQL["order_behind"], (queue,))


def disorder(transaction: Transaction, queue: str) -> None:
    """*queue* no longer keeps order: no letter waits for an earlier one of its key."""
    transaction.sql(_SQL["let_go_behind"], (queue,))
    transaction.sql(_SQL["disorder"], (queue,))
