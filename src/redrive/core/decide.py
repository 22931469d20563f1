"""
Decide where a letter goes next.

Every rule that moves a letter after an attempt lives in this file. It reads no
clock, draws no random number and knows no store: the caller brings the draw and
how long the cycle has lasted, and the store carries out the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, assert_never

import msgspec

from redrive.core.letter import Category, Failure, Status
from redrive.core.moves import Move
from redrive.core.why import Why

if TYPE_CHECKING:
    from redrive.core.policy import RetryPolicy

MAX_LOSSES = 3
_RETRY_AFTER_BOUND = 86_400.0  # a server that asks for a year gets a day


class Standing(Protocol):
    """What a decision needs to know of a letter: a claim has it, and so has a Kafka record."""

    @property
    def attempts(self) -> int:
        """Tries begun in this cycle, this one included."""

    @property
    def losses(self) -> int:
        """Claims lost with their process in this cycle."""


class Succeeded(msgspec.Struct, frozen=True):
    """The handler returned."""


class Failed(msgspec.Struct, frozen=True):
    """The handler raised, timed out or returned what `succeeded=` refuses."""

    failure: Failure


class Lost(msgspec.Struct, frozen=True):
    """The process that ran it is gone, or its lease is."""

    reason: str = Why.WORKER_LOST


class Interrupted(msgspec.Struct, frozen=True):
    """We stopped it, or did not start it: a shutdown, an open breaker. Not the letter's fault."""

    reason: str = Why.INTERRUPTED
    wait: float = 0.0


Outcome = Succeeded | Failed | Lost | Interrupted
SUCCEEDED = Succeeded()
DELIVERED = Move(Status.DELIVERED, Why.SUCCEEDED)


def decide(standing: Standing, outcome: Outcome, policy: RetryPolicy, draw: float, *, age: float = 0.0) -> Move:
    """Return the move that *outcome* calls for; *draw* is in [0, 1), *age* the seconds that the cycle has lasted."""
    if type(outcome) is Failed:  # first and by its very type: matching a struct takes longer than all of the rest
        return _after_failure(standing.attempts, outcome.failure, policy, draw, age)
    match outcome:
        case Succeeded():
            return DELIVERED
        case Interrupted(reason, wait):
            return Move(Status.PENDING, reason, delay=wait, counts=False)
        case Lost(reason):
            return _after_loss(standing.losses + 1, reason, policy)
        case Failed(failure):
            return _after_failure(standing.attempts, failure, policy, draw, age)
    assert_never(outcome)


def after_fault(fault: str) -> Move:
    """Return the move of a letter that a *fault* of our own met: trying again would meet it again, so it is dead."""
    failure = Failure(
        error_type="RedriveFault",
        message=f"redrive itself could not go on with this letter ({fault}); report it, and replay the letter",
        category=Category.PERMANENT,
        rule="a fault of redrive's own",
        terminal=True,
        fingerprint=Why.REDRIVE_FAULT,
    )
    return Move(Status.FAILED, Why.REDRIVE_FAULT, failure=failure)


def is_retry(move: Move) -> bool:
    """Whether *move* is paid for from the retry budget."""
    return move.to is Status.PENDING and move.failure is not None


def held_back(move: Move, hold: float) -> Move:
    """Return a retry that waits for at least *hold* seconds: an empty budget delays, it never fails a letter."""
    return move if move.delay >= hold else msgspec.structs.replace(move, delay=hold)


def _after_loss(losses: int, reason: str, policy: RetryPolicy) -> Move:
    if losses < MAX_LOSSES:
        return Move(Status.PENDING, reason, counts=False, loss=True, policy=policy.text)
    crashed = Failure(
        error_type="WorkerCrashed",
        message=f"its worker died {losses} times while running it ({reason})",
        category=Category.RESOURCE,
        rule=f"lost {losses} times of {MAX_LOSSES}",
        terminal=True,
        fingerprint=Why.WORKER_CRASHED,
    )
    return Move(Status.FAILED, Why.WORKER_CRASHED, counts=False, loss=True, failure=crashed, policy=policy.text)


def _after_failure(attempts: int, failure: Failure, policy: RetryPolicy, draw: float, age: float) -> Move:
    if failure.terminal:
        return _give_up(Why.TERMINAL, failure, policy, draw, age)
    if attempts >= policy.max_attempts:
        return _give_up(Why.EXHAUSTED, failure, policy, draw, age)
    delay = next_delay(policy, attempts, draw, failure.retry_after)
    if policy.total is not None and age + delay > policy.total:
        return _give_up(Why.OUT_OF_TIME, failure, policy, draw, age)
    why = Why.BACKING_OFF if failure.retry_after is None else Why.ASKED_TO_WAIT
    return Move(Status.PENDING, why, delay=delay, failure=failure, draw=draw, policy=policy.text, age=age)


def _give_up(why: Why, failure: Failure, policy: RetryPolicy, draw: float, age: float) -> Move:
    """Keep the draw, too: it is asked for when somebody wants to know what another policy would have done."""
    return Move(Status.FAILED, why, failure=failure, draw=draw, policy=policy.text, age=age)


def next_delay(policy: RetryPolicy, attempts: int, draw: float, retry_after: float | None) -> float:
    """Return the wait after try number *attempts*; a Retry-After is a floor, with the jitter above it."""
    delay = policy.delay(attempts, draw)
    if retry_after is None:
        return delay
    floor = max(0.0, min(retry_after, _RETRY_AFTER_BOUND))
    return max(delay, floor + policy.spread(draw))
