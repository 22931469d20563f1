"""
Writing down a failure.

Owns what a row keeps of it: the error, the attempt log, the group, the searchable text.
Knows no rule: the move says where the letter goes and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redrive.core.letter import Status
from redrive.core.moves import line_of, logged
from redrive.failpoints import hit
from redrive.stores import columns
from redrive.stores.sqlite import ordering
from redrive.stores.sqlite.transaction import Trait

if TYPE_CHECKING:
    from redrive.core.letter import Failure
    from redrive.core.moves import Move
    from redrive.stores.sqlite.transaction import Turn

KEPT_TRIES = 50
SEARCHED = 500  # characters of an error's text that the index covers


class Standing(NamedTuple):
    """What must be known of a row to move it."""

    seq: int
    queue: str
    kind: str
    key: str | None
    attempts: int
    first_failed_us: int | None
    tries: bytes | None
    lane: int
    status: str = "in_flight"


def fail(turn: Turn, row: Standing, move: Move, token: int) -> None:
    """Make it a dead letter."""
    failure = move.failure
    assert failure is not None, "a move to failed carries its failure"  # noqa: S101 - decide never does otherwise
    turn.sql(
        "UPDATE letters SET status = 'failed', dead = 1, token = ?, updated_us = ?, why = ?, "
        "attempts = attempts - ?, losses = losses + ?, category = ?, error_type = ?, last_error = ?, fingerprint = ?, "
        "first_failed_us = coalesce(first_failed_us, ?), failed_us = ?, applied_policy = ?, tries = ?, "
        "lane = min(lane, 1), "
        "release = coalesce(?, release) "
        "WHERE seq = ?",
        (
            token, turn.now_us, move.why, not move.counts, move.loss, failure.category, failure.error_type,
            failure.message, failure.fingerprint, turn.now_us, turn.now_us, move.policy or None, log(turn, row, move),
            failure.release, row.seq,
        ),
    )  # fmt: skip
    turn.moved(Trait(row.queue, row.kind, row.status), trait_of(row.queue, row.kind, failure, move.policy))
    hit("fail.inside")
    _remember(turn, row.seq, failure)
    if row.lane and row.key is not None:
        ordering.advance(turn, row.queue, row.key)


def trait_of(queue: str, kind: str, failure: Failure, policy: str) -> Trait:
    """Return what a dead letter is counted by."""
    return Trait(queue, kind, Status.FAILED, failure.category, policy, failure.error_type, failure.fingerprint)


def _remember(turn: Turn, seq: int, failure: Failure) -> None:
    """Note the group and make the text searchable."""
    turn.sql(
        "INSERT INTO groups VALUES (?, ?, ?, ?4, ?4) ON CONFLICT DO UPDATE SET last_seen_us = excluded.last_seen_us",
        (failure.fingerprint, failure.error_type, failure.template or failure.message[:SEARCHED], turn.now_us),
    )
    make_searchable(turn, seq, failure.message)


def make_searchable(turn: Turn, seq: int, error: str) -> None:
    """Let searches find the letter at *seq* by the text of its error."""
    turn.sql("DELETE FROM error_text WHERE rowid = ?", (seq,))
    folded = error[:SEARCHED].lower()  # as a query folds it: the index knows simpler rules
    turn.sql("INSERT INTO error_text (rowid, error) VALUES (?, ?)", (seq, folded))


def log(turn: Turn, row: Standing, move: Move) -> bytes:
    """Return the attempt log with one line more."""
    line = line_of(move, row.attempts, turn.now_us)
    return columns.encode(logged(columns.read_tries(row.tries), line, KEPT_TRIES))
