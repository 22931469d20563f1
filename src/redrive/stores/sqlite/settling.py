"""
Settling claims: carrying out moves, fenced by token.

Owns the writes that end a claim. The common case, many successes of one claim, is one
statement. Knows no rule: moves come from `decide`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING

import apsw

from redrive.core.letter import Status
from redrive.failpoints import hit
from redrive.stores.sqlite import claiming, failing, ordering
from redrive.stores.sqlite.transaction import Trait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.moves import Move
    from redrive.stores.contract import Claim
    from redrive.stores.sqlite.transaction import Turn

Settlement = tuple["Claim", "Move"]

_DELIVER = """
UPDATE letters SET status = 'delivered', token = ?, updated_us = ?, why = 'succeeded'
 WHERE seq IN carray(?) AND token = ? AND status = 'in_flight'
"""
_READ = """
SELECT seq, queue, kind, key, attempts, first_failed_us, tries, lane FROM letters
 WHERE seq = ? AND token = ? AND status = 'in_flight'
"""
_RELEASE = """
UPDATE letters SET status = 'pending', token = ?, updated_us = ?, why = ?, due_us = ?,
       attempts = attempts - ?, losses = losses + ?, applied_policy = coalesce(?, applied_policy) WHERE seq = ?
"""
_RETRY = """
UPDATE letters SET category = ?, error_type = ?, last_error = ?, fingerprint = ?, applied_policy = ?, tries = ?,
       first_failed_us = coalesce(first_failed_us, ?), release = coalesce(?, release) WHERE seq = ?
"""


def settle(turn: Turn, settlements: Sequence[Settlement]) -> tuple[bool, ...]:
    """Carry out each move; False where the claim is no longer held."""
    token = turn.next_token()
    if len({claim.ref for claim, _ in settlements}) < len(settlements):
        return tuple(_one(turn, claim, move, turn.next_token()) for claim, move in settlements)
    successes = [claim for claim, move in settlements if move.to is Status.DELIVERED]
    refused = _deliver_all(turn, successes, token)
    hit("settle.inside")
    if not refused and len(successes) == len(settlements):
        return (True,) * len(settlements)
    return tuple(
        claim.ref not in refused if move.to is Status.DELIVERED else _move(turn, claim, move, token)
        for claim, move in settlements
    )


def _one(turn: Turn, claim: Claim, move: Move, token: int) -> bool:
    """Settle one by one: of two settlements of one letter the first wins."""
    if move.to is Status.DELIVERED:
        return not _deliver_all(turn, [claim], token)
    return _move(turn, claim, move, token)


def _deliver_all(turn: Turn, claims: Sequence[Claim], token: int) -> set[int]:
    """Deliver *claims* and return the places of those that no longer held."""
    refused: set[int] = set()
    for held, group in claiming.by_token(claims).items():
        holding = _deliver(turn, held, group, token, refused)
        if holding:
            _count(turn, holding)
            _release_followers(turn, holding)
    return refused


def _deliver(turn: Turn, held: int, claims: list[Claim], token: int, refused: set[int]) -> list[Claim]:
    places = array("q", [claim.ref for claim in claims])
    bindings = (token, turn.now_us, apsw.carray(places), held)
    turn.sql(_DELIVER, bindings)
    if turn.connection.changes() == len(claims):
        return claims
    accepted = {
        row[0]
        for row in turn.sql(
            "SELECT seq FROM letters WHERE seq IN carray(?) AND token = ?", (apsw.carray(places), token)
        )
    }
    refused.update(claim.ref for claim in claims if claim.ref not in accepted)
    return [claim for claim in claims if claim.ref in accepted]


def _count(turn: Turn, claims: Sequence[Claim]) -> None:
    """Count claims of one act as delivered."""
    queue = claims[0].letter.queue  # one act claims from one queue
    for kind, count in Counter([claim.letter.kind for claim in claims]).items():
        turn.moved(Trait(queue, kind, "in_flight"), Trait(queue, kind, "delivered"), count)


def _release_followers(turn: Turn, claims: Sequence[Claim]) -> None:
    ordering.delivered(turn, [claim.ref for claim in claims])
    ordered = {queue.name for queue in turn.queues.values() if queue.ordered}
    if not ordered:
        return
    for claim in claims:
        letter = claim.letter
        if letter.key is not None and letter.queue in ordered:
            ordering.advance(turn, letter.queue, letter.key)


def _move(turn: Turn, claim: Claim, move: Move, token: int) -> bool:
    found = turn.sql(_READ, (claim.ref, claim.letter.token)).fetchone()
    if found is None:
        return False
    row = failing.Standing(*found)
    if move.to is Status.FAILED:
        failing.fail(turn, row, move, token)
    else:
        _release(turn, row, move, token)
    return True


def _release(turn: Turn, row: failing.Standing, move: Move, token: int) -> None:
    due = turn.now_us + round(move.delay * 1e6)
    policy = move.policy or None
    turn.sql(_RELEASE, (token, turn.now_us, move.why, due, not move.counts, move.loss, policy, row.seq))
    failure = move.failure
    if failure is not None:
        log = failing.log(turn, row, move)
        turn.sql(
            _RETRY,
            (
                failure.category,
                failure.error_type,
                failure.message,
                failure.fingerprint,
                policy,
                log,
                turn.now_us,
                failure.release,
                row.seq,
            ),
        )
    turn.moved(Trait(row.queue, row.kind, "in_flight"), Trait(row.queue, row.kind, "pending"))
