"""
Letters that wait for other letters: order per key, and `after`.

Owns `held`, `lane` and the table of waits. A letter runs only when it is pending, due
and held by nothing, so a claim never has to look at those that wait.
Knows nothing of why a letter came to rest: it is told, and releases who waited for it.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import apsw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.stores.sqlite.transaction import Transaction

UNORDERED, FIRST, BEHIND = 0, 1, 2


def place(transaction: Transaction, queue: str, key: str | None) -> int:
    """Return where a letter of *key* would stand in *queue* now."""
    if key is None or not transaction.queue(queue).ordered:
        return UNORDERED
    return BEHIND if _lane_is_busy(transaction, queue, key) else FIRST


def _lane_is_busy(transaction: Transaction, queue: str, key: str) -> bool:
    sql = (
        "SELECT 1 FROM letters WHERE queue = ? AND key = ? AND lane > 0 AND status IN ('pending', 'in_flight') LIMIT 1"
    )
    return transaction.sql(sql, (queue, key)).fetchone() is not None


def first(connection: apsw.Connection, queue: str, key: str) -> str | None:
    """Return the letter of a lane that goes first."""
    sql = (
        "SELECT id FROM letters WHERE queue = ? AND key = ? AND lane = 1 AND status IN ('pending', 'in_flight') "
        "ORDER BY seq LIMIT 1"
    )
    row = connection.execute(sql, (queue, key)).fetchone()
    return None if row is None else str(row[0])


def advance(transaction: Transaction, queue: str, key: str) -> None:
    """Let the oldest letter of a lane go first: the one before it came to rest."""
    sql = (
        "SELECT seq FROM letters WHERE queue = ? AND key = ? AND lane > 0 AND status IN ('pending', 'in_flight') "
        "ORDER BY seq LIMIT 1"
    )
    row = transaction.sql(sql, (queue, key)).fetchone()
    if row is not None:
        transaction.sql("UPDATE letters SET lane = 1, held = held - 1 WHERE seq = ? AND lane = 2", row)


def line_up(transaction: Transaction, queue: str, key: str) -> None:
    """Put a lane in order again, the oldest first, because letters came back into it; one under way stays first."""
    sql = (
        "SELECT seq, lane, status FROM letters WHERE queue = ? AND key = ? AND lane > 0 "
        "AND status IN ('pending', 'in_flight') ORDER BY status = 'pending', seq"
    )
    for place, (seq, lane, _) in enumerate(transaction.sql(sql, (queue, key)).fetchall()):
        wanted = BEHIND if place else FIRST
        if lane != wanted:
            transaction.sql("UPDATE letters SET lane = ?1, held = held + ?1 - lane WHERE seq = ?2", (wanted, seq))


def come_back(transaction: Transaction, seqs: Sequence[int]) -> None:
    """Let letters that come back from rest wait for their `after` alone: what held them by their key then is over."""
    transaction.connection.executemany(
        "UPDATE letters SET held = (SELECT count(*) FROM waits WHERE waits.seq = letters.seq) WHERE seq = ?",
        [(seq,) for seq in seqs],
    )


def wait_for(transaction: Transaction, seq: int, on_seqs: Sequence[int]) -> None:
    """Note that letter *seq* waits for *on_seqs*."""
    transaction.connection.executemany("INSERT INTO waits VALUES (?, ?)", [(on_seq, seq) for on_seq in on_seqs])


def delivered(transaction: Transaction, seqs: Sequence[int]) -> None:
    """Let go those who waited for *seqs*."""
    if transaction.sql("SELECT 1 FROM waits LIMIT 1").fetchone() is None:
        return
    places = apsw.carray(array("q", seqs))
    waiting = transaction.sql("SELECT seq FROM waits WHERE on_seq IN carray(?)", (places,)).fetchall()
    transaction.connection.executemany("UPDATE letters SET held = held - 1 WHERE seq = ?", waiting)
    transaction.sql("DELETE FROM waits WHERE on_seq IN carray(?)", (places,))


def order(transaction: Transaction, queue: str) -> None:
    """*queue* keeps order from now on: line up its unfinished letters by key."""
    transaction.sql(
        "UPDATE letters SET lane = 1 WHERE queue = ? AND key IS NOT NULL AND lane = 0 "
        "AND status IN ('pending', 'in_flight')",
        (queue,),
    )
    transaction.sql(
        "UPDATE letters SET lane = 2, held = held + 1 WHERE queue = ?1 AND lane = 1 AND status = 'pending' "
        "AND EXISTS (SELECT 1 FROM letters AS other WHERE other.queue = ?1 AND other.key = letters.key "
        "            AND other.lane > 0 AND other.status IN ('pending', 'in_flight') "
        "            AND (other.status = 'in_flight' OR other.seq < letters.seq))",
        (queue,),
    )


def disorder(transaction: Transaction, queue: str) -> None:
    """*queue* no longer keeps order: nobody waits for an earlier letter of its key."""
    transaction.sql("UPDATE letters SET held = held - 1 WHERE queue = ? AND lane = 2", (queue,))
    transaction.sql("UPDATE letters SET lane = 0 WHERE queue = ? AND lane > 0", (queue,))
