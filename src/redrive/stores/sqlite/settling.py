"""
Settling claims: carrying out moves, fenced by token.

Owns the writes that end a claim. Many successes of one claim, the common case, are one statement.
Knows no rule: moves come from `decide`, and `core.changes` says what they do to a letter.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING

import apsw

from redrive.core import changes
from redrive.core.letter import Status
from redrive.core.tallies import Trait, trait_of
from redrive.core.why import Why
from redrive.failpoints import hit
from redrive.stores.contract import seq_of
from redrive.stores.sqlite import claiming, failing, ordering
from redrive.stores.sqlite.sql import statements
from redrive.stores.sqlite.writing import update_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.moves import Move
    from redrive.stores.contract import Claim
    from redrive.stores.sqlite.transaction import Transaction

Settlement = tuple["Claim", "Move"]

_SQL = statements("settling", succeeded=Why.SUCCEEDED)
_DELIVER = _SQL["deliver"]  # sent with every success
_FENCE = f" {_SQL['fence']}"
_MOVED = ("status", "updated_us", "why", "attempts", "losses", "applied_policy")
_ERROR = ("category", "error_type", "last_error", "fingerprint", "first_failed_us", "release", "tries")
_GIVE_BACK = update_of((*_MOVED, "due_us"))
_RETRY = update_of((*_MOVED, "due_us", *_ERROR))
_FAIL = update_of((*_MOVED, "failed_us", *_ERROR), also=", dead = 1, lane = min(lane, 1)")


def settle(transaction: Transaction, settlements: Sequence[Settlement]) -> tuple[bool, ...]:
    """Carry out each move; False where the claim is no longer held."""
    token = transaction.next_token()
    if len({seq_of(claim) for claim, _ in settlements}) < len(settlements):
        return tuple(_one(transaction, claim, move, transaction.next_token()) for claim, move in settlements)
    successes = [claim for claim, move in settlements if move.to is Status.DELIVERED]
    refused = _deliver_all(transaction, successes, token)
    hit("settle.inside")
    if not refused and len(successes) == len(settlements):
        return (True,) * len(settlements)
    return tuple(
        seq_of(claim) not in refused if move.to is Status.DELIVERED else _move(transaction, claim, move, token)
        for claim, move in settlements
    )


def _one(transaction: Transaction, claim: Claim, move: Move, token: int) -> bool:
    """Settle one by one: of two settlements of one letter the first wins."""
    if move.to is Status.DELIVERED:
        return not _deliver_all(transaction, [claim], token)
    return _move(transaction, claim, move, token)


def _deliver_all(transaction: Transaction, claims: Sequence[Claim], token: int) -> set[int]:
    """Deliver *claims* and return the seqs of those that no longer held."""
    refused: set[int] = set()
    for held, group in claiming.by_token(claims).items():
        holding = _deliver(transaction, held, group, token, refused)
        if holding:
            _count(transaction, holding)
            _release_followers(transaction, holding)
    return refused


def _deliver(transaction: Transaction, held: int, claims: list[Claim], token: int, refused: set[int]) -> list[Claim]:
    seqs = array("q", [seq_of(claim) for claim in claims])
    bindings = (token, transaction.now_us, apsw.carray(seqs), held)
    transaction.sql(_DELIVER + _FENCE, bindings)
    if transaction.connection.changes() == len(claims):
        return claims
    accepted = {row[0] for row in transaction.sql(_SQL["delivered"], (apsw.carray(seqs), token))}
    refused.update(seq_of(claim) for claim in claims if seq_of(claim) not in accepted)
    return [claim for claim in claims if seq_of(claim) in accepted]


def _count(transaction: Transaction, claims: Sequence[Claim]) -> None:
    """Count claims of one act as delivered."""
    queue = claims[0].letter.queue  # one act claims from one queue
    for kind, count in Counter([claim.letter.kind for claim in claims]).items():
        transaction.moved(Trait(queue, kind, "in_flight"), Trait(queue, kind, "delivered"), count)


def _release_followers(transaction: Transaction, claims: Sequence[Claim]) -> None:
    ordering.delivered(transaction, [seq_of(claim) for claim in claims])
    ordered = {queue.name for queue in transaction.queues.values() if queue.ordered}
    if not ordered:
        return
    for claim in claims:
        letter = claim.letter
        if letter.key is not None and letter.queue in ordered:
            ordering.advance(transaction, letter.queue, letter.key)


def _move(transaction: Transaction, claim: Claim, move: Move, token: int) -> bool:
    """Carry out one move; the letter is as it was claimed, as long as the fence lets the statement through."""
    before = claim.letter
    after = changes.settled(before, move, transaction.now_us)
    statement = _FAIL if move.to is Status.FAILED else _GIVE_BACK if move.failure is None else _RETRY
    transaction.sql(statement.sql + _FENCE, (*statement.values(after, token, seq_of(claim)), before.token))
    if not transaction.connection.changes():
        return False
    transaction.moved(Trait(before.queue, before.kind, "in_flight"), trait_of(after))
    if move.to is Status.FAILED:
        _rest(transaction, claim, move)
    return True


def _rest(transaction: Transaction, claim: Claim, move: Move) -> None:
    """Note the failure of a letter that is dead now, and let the next letter of its key go first."""
    letter = claim.letter
    assert move.failure is not None, "a move to failed carries its failure"  # noqa: S101 - decide never does otherwise
    failing.remember(transaction, seq_of(claim), move.failure, again=letter.cycles > 0)
    if letter.key is not None and transaction.queue(letter.queue).ordered:
        ordering.advance(transaction, letter.queue, letter.key)
