"""
Settling claims: carrying out moves, fenced by token.

Owns the writes that end a claim. Many successes of one claim, the common case, are one statement, and so are many
failures with the same error.
Knows no rule: moves come from `decide`, and `core.changes` says what they do to a letter.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import apsw

from redrive.core import changes
from redrive.core.letter import Status
from redrive.core.letter.tallies import Trait, trait_of
from redrive.core.why import Why
from redrive.failpoints import hit
from redrive.stores.contract import seq_of
from redrive.stores.sqlite import claiming, failing, ordering
from redrive.stores.sqlite.sql import statements
from redrive.stores.sqlite.writing import ITS_DUE, logged_rows, update_alike, update_logged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.letter import Failure, Letter
    from redrive.core.moves import Move
    from redrive.stores.contract import Claim
    from redrive.stores.sqlite.transaction import Transaction

Settlement = tuple["Claim", "Move"]

_SQL = statements("settling", succeeded=Why.SUCCEEDED)
_DELIVER = _SQL["deliver"]  # sent with every success
_FENCE = f" {_SQL['fence']}"
_MOVED = ("status", "updated_us", "why", "attempts", "losses", "applied_policy")
_ERROR = ("category", "error_type", "last_error", "fingerprint", "first_failed_us", "release")
_GIVE_BACK = update_alike((*_MOVED, "due_us"))
_RETRY = update_logged((*_MOVED, *_ERROR), also=ITS_DUE)
_FAIL = update_logged((*_MOVED, "failed_us", *_ERROR), also=", dead = 1, lane = min(lane, 1)")


def settle(transaction: Transaction, settlements: Sequence[Settlement]) -> tuple[bool, ...]:
    """Carry out each move; False where the claim is no longer held."""
    token = transaction.next_token()
    if len({claim.ref for claim, _ in settlements}) < len(settlements):
        return tuple(_one(transaction, claim, move, transaction.next_token()) for claim, move in settlements)
    successes = [claim for claim, move in settlements if move.to is Status.DELIVERED]
    refused = _deliver_all(transaction, successes, token)
    hit("settle.inside")
    if not refused and len(successes) == len(settlements):
        return (True,) * len(settlements)
    _move_all(transaction, [each for each in settlements if each[1].to is not Status.DELIVERED], token, refused)
    if not refused:
        return (True,) * len(settlements)
    return tuple(seq_of(claim) not in refused for claim, _ in settlements)


def _one(transaction: Transaction, claim: Claim, move: Move, token: int) -> bool:
    """Settle one by one: of two settlements of one letter the first wins."""
    if move.to is Status.DELIVERED:
        return not _deliver_all(transaction, [claim], token)
    refused: set[int] = set()
    _move_all(transaction, [(claim, move)], token, refused)
    return not refused


def _deliver_all(transaction: Transaction, claims: Sequence[Claim], token: int) -> set[int]:
    """Deliver *claims* and return the seqs of those that no longer held."""
    refused: set[int] = set()
    for held, group in claiming.by_token(claims).items():
        holding = _deliver(transaction, held, group, token, refused)
        if holding:
            _count(transaction, holding)
            _advance_keys(transaction, holding)
    return refused


def _deliver(transaction: Transaction, held: int, claims: list[Claim], token: int, refused: set[int]) -> list[Claim]:
    seqs = array("q", map(seq_of, claims))
    bindings = (token, transaction.now_us, apsw.carray(seqs), held)
    transaction.sql(_DELIVER + _FENCE, bindings)
    if transaction.connection.changes() == len(claims):
        return claims
    accepted = _written(transaction, seqs, token)
    refused.update(seq_of(claim) for claim in claims if seq_of(claim) not in accepted)
    return [claim for claim in claims if seq_of(claim) in accepted]


def _written(transaction: Transaction, seqs: Sequence[int], token: int) -> set[int]:
    """Return which of *seqs* this settling has moved."""
    return {row[0] for row in transaction.sql(_SQL["written"], (apsw.carray(array("q", seqs)), token))}


def _count(transaction: Transaction, claims: Sequence[Claim]) -> None:
    """Count claims of one act as delivered."""
    queue = claims[0].letter.queue  # one act claims from one queue
    for kind, count in Counter([claim.letter.kind for claim in claims]).items():
        transaction.moved(Trait(queue, kind, "in_flight"), Trait(queue, kind, "delivered"), count)


def _advance_keys(transaction: Transaction, claims: Sequence[Claim]) -> None:
    ordering.delivered(transaction, list(map(seq_of, claims)))
    ordered = {queue.name for queue in transaction.queues.values() if queue.ordered}
    if not ordered:
        return
    for claim in claims:
        letter = claim.letter
        if letter.key is not None and letter.queue in ordered:
            ordering.advance(transaction, letter.queue, letter.key)


def _move_all(transaction: Transaction, settlements: Sequence[Settlement], token: int, refused: set[int]) -> None:
    """Carry out moves that are no successes; letters become the same row, but for their logs, by one statement."""
    groups: defaultdict[tuple[Any, ...], list[Settlement]] = defaultdict(list)
    for claim, move in settlements:
        groups[claim.letter.token, changes.likeness(claim.letter, move)].append((claim, move))
    for (held, _), alike in groups.items():
        after = changes.settled(alike[0][0].letter, alike[0][1], transaction.now_us)
        gone = _move(transaction, alike, after, token, held)
        refused |= gone
        moved = [claim for claim, _ in alike if seq_of(claim) not in gone]
        if moved:
            _after_moves(transaction, moved, after, alike[0][1].failure)


def _move(transaction: Transaction, alike: list[Settlement], after: Letter, token: int, held: int) -> set[int]:
    """Make letters what *after* says, each with its own log and due time; return the seqs of those no longer held."""
    move, seqs = alike[0][1], [seq_of(claim) for claim, _ in alike]
    update = _FAIL if move.to is Status.FAILED else _GIVE_BACK if move.failure is None else _RETRY
    rows = apsw.carray(array("q", seqs)) if move.failure is None else _logged(alike, transaction.now_us)
    transaction.sql(update.sql + _FENCE, (*update.plain(after), token, rows, held))
    if transaction.connection.changes() == len(seqs):
        return set()
    return set(seqs) - _written(transaction, seqs, token)


def _logged(settlements: Sequence[Settlement], now: int) -> Any:
    return logged_rows(
        (seq_of(claim), now + changes.span(move.delay), changes.tried(claim.letter, move, now))
        for claim, move in settlements
    )


def _after_moves(transaction: Transaction, moved: list[Claim], after: Letter, failure: Failure | None) -> None:
    """Count letters that moved alike; if they are dead now, note their failure and let the next of their keys go."""
    transaction.moved(Trait(after.queue, after.kind, "in_flight"), trait_of(after), len(moved))
    if after.status is not Status.FAILED:
        return
    assert failure is not None, "a move to failed carries its failure"  # noqa: S101 - decide never does otherwise
    for again in (False, True):
        seqs = [seq_of(claim) for claim in moved if (claim.letter.cycles > 0) is again]
        if seqs:
            failing.remember(transaction, seqs, failure, again=again)
    if transaction.queue(after.queue).ordered:
        for key in {claim.letter.key: None for claim in moved if claim.letter.key is not None}:
            ordering.advance(transaction, after.queue, key)
