"""
From outcomes to moves.

Owns what a decision needs besides the rules: which policy applies, how long the cycle has lasted, the draw, and the
version of the code. Every outcome becomes a move; if a fault of our own prevents the decision, the letter fails.
Knows no rule (`core.decide`) and no store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from redrive.core.decide import DELIVERED, SUCCEEDED, decide
from redrive.core.failures.describe import NAME_LIMIT, clean
from redrive.core.policy import DEFAULT_RETRY_POLICY, RetryPolicy
from redrive.core.policy.backoffs import Backoffs
from redrive.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.core.decide import Outcome, PolicyChoice
    from redrive.core.moves import Move
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.worker.faults import Faults
    from redrive.stores.contract import Claim

    Settlement = tuple[Claim, Move]

_REMEMBERED = 10_000  # batches


class Deciding:
    """Decides for the handlers of one process."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        faults: Faults,
        clock: Clock,
        *,
        release: str | None = None,
        backoffs: Backoffs | None = None,
    ) -> None:
        self._handlers, self._faults, self._clock = handlers, faults, clock
        self._backoffs = backoffs or Backoffs()
        self._version = clean(release, NAME_LIMIT) if release else None  # it is written with every failure
        self._claimed: dict[int, float] = {}  # when, by token: how long a letter ran is part of its age

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Note that *claims* were made now."""
        for token in {claim.letter.token for claim in claims}:
            self._claimed[token] = self._clock.monotonic()
        while len(self._claimed) > _REMEMBERED:
            del self._claimed[next(iter(self._claimed))]

    def claimed_at(self, claim: Claim) -> float:
        """Return when *claim* was made, by the worker's clock; now, if that is no longer known."""
        return self._claimed.get(claim.token) or self._clock.monotonic()

    def moves(self, outcomes: Sequence[tuple[Claim, Outcome]]) -> list[Settlement]:
        """Return the move of each; none is dropped."""
        try:
            return [
                (claim, DELIVERED if outcome is SUCCEEDED else self._decide(claim, outcome))
                for claim, outcome in outcomes
            ]
        except Exception:  # noqa: BLE001 - a fault of ours, and one letter is to blame
            return [(claim, self._decide_or_fail(claim, outcome)) for claim, outcome in outcomes]

    def policy_of(self, claim: Claim) -> RetryPolicy | PolicyChoice:
        """Return the letter's own policy, else its handler's: fixed, or chosen by the failure."""
        handler = self._handlers.get(claim.letter.kind)
        given = (handler.choose or handler.policy) if handler else DEFAULT_RETRY_POLICY
        text = claim.letter.policy
        if text is None:
            return self._bound(given)
        try:
            return self._bound(RetryPolicy.parse(text))
        except PolicyError:  # another version of the code wrote it; the handler's own is the nearest thing
            return self._bound(given)

    def _bound(self, given: RetryPolicy | PolicyChoice) -> RetryPolicy | PolicyChoice:
        """Return *given* with the backoff function that it names."""
        if isinstance(given, RetryPolicy):
            return self._backoffs.bound(given) if given.name else given
        return lambda failure: self._backoffs.bound(given(failure))

    def _decide(self, claim: Claim, outcome: Outcome) -> Move:
        move = decide(claim, outcome, self.policy_of(claim), self._clock.draw(), age=self._age(claim))
        if self._version and move.failure is not None:
            failure = msgspec.structs.replace(move.failure, release=self._version)
            return msgspec.structs.replace(move, failure=failure)
        return move

    def _decide_or_fail(self, claim: Claim, outcome: Outcome) -> Move:
        try:
            return self._decide(claim, outcome)
        except Exception as error:  # noqa: BLE001 - a fault of ours; one letter must not stop the others
            return self._faults.fail("decide what becomes of a letter", error, claim)

    def _age(self, claim: Claim) -> float:
        """Return how long the cycle of *claim* has lasted: until it was claimed, and since."""
        now = self._clock.monotonic()
        return claim.age + now - self._claimed.get(claim.token, now)
