"""
Decide where a letter goes next.

Owns every rule that moves a letter after an attempt. Knows no clock, no chance and no store: the caller brings
the draw and how long the cycle has lasted, and the store carries out the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, assert_never

import msgspec

from redrive.core.letter import Category, Failure, Status
from redrive.core.moves import Move
from redrive.core.policy import RetryPolicy
from redrive.core.why import Why

MAX_LOSSES = 3
# A letter may kill the process that reads it, before it begins: its payload fills the memory. So some deaths of letters
# that had not begun count, one of five by chance. Such a letter is failed after some ten deaths, and a letter that
# was only in the same process hardly ever.
LOSSES_BEFORE_BEGINNING = 0.2
_RETRY_AFTER_BOUND = 86_400.0  # a server that asks for a year gets a day


PolicyChoice = Callable[[Failure], RetryPolicy]  # chooses by the newest failure, for example by its category


class Counters(Protocol):
    """What a decision needs to know about a letter: a claim has it, and so has a Kafka record."""

    @property
    def attempts(self) -> int:
        """Tries begun in this cycle, this one included."""

    @property
    def losses(self) -> int:
        """Claims lost with their process in this cycle."""


class NextTry(msgspec.Struct, frozen=True):
    """When we repeat an operation of our own that must not be given up, such as publishing a dead letter."""

    delay: float
    exhausted: bool  # it failed as often as the policy allows: the caller tries on, and reports it


class Counted(msgspec.Struct, frozen=True):
    """The counters of a call that is no letter, or of a try that is only supposed."""

    attempts: int
    losses: int = 0


class Succeeded(msgspec.Struct, frozen=True):
    """The handler returned."""


class Failed(msgspec.Struct, frozen=True):
    """The handler raised, timed out or returned what `succeeded=` refuses."""

    failure: Failure


class Lost(msgspec.Struct, frozen=True):
    """The process that held it is gone, or its lease is."""

    reason: str = Why.WORKER_LOST
    had_begun: bool = True


class Interrupted(msgspec.Struct, frozen=True):
    """We stopped it, or did not start it: a shutdown, an open breaker. Not the letter's fault."""

    reason: str = Why.INTERRUPTED
    wait: float = 0.0


Outcome = Succeeded | Failed | Lost | Interrupted
SUCCEEDED = Succeeded()
DELIVERED = Move(Status.DELIVERED, Why.SUCCEEDED)


def decide(
    counters: Counters, outcome: Outcome, policy: RetryPolicy | PolicyChoice, draw: float, *, age: float = 0.0
) -> Move:
    """Return the move that *outcome* calls for; *draw* is in [0, 1), *age* the seconds that the cycle has lasted."""
    if type(outcome) is Failed:  # first and by its exact type: matching a struct takes longer than all the rest
        return _after_failure(counters.attempts, outcome.failure, policy, draw, age)
    match outcome:
        case Succeeded():
            return DELIVERED
        case Interrupted(reason, wait):
            return Move(Status.PENDING, reason, delay=wait, counts=False)
        case Lost(reason, had_begun) if not had_begun and draw >= LOSSES_BEFORE_BEGINNING:
            return Move(Status.PENDING, reason, counts=False)
        case Lost(reason):
            return _after_loss(counters.losses + 1, reason, policy)
        case Failed(failure):
            return _after_failure(counters.attempts, failure, policy, draw, age)
    assert_never(outcome)


def policy_for(policy: RetryPolicy | PolicyChoice, failure: Failure) -> RetryPolicy:
    """Return the policy that applies to *failure*: the fixed one, or the one that is chosen for it."""
    return policy if isinstance(policy, RetryPolicy) else policy(failure)


def after_fault(fault: str) -> Move:
    """Return the move of a letter that met a *fault* of our own: it is dead, because a retry would meet it again."""
    failure = Failure(
        error_type="RedriveFault",
        message=f"redrive itself could not go on with this letter ({fault}); report it, and replay the letter",
        category=Category.PERMANENT,
        rule="a fault of redrive's own",
        terminal=True,
        fingerprint=Why.REDRIVE_FAULT,
    )
    return Move(Status.FAILED, Why.REDRIVE_FAULT, failure=failure)


def after_dead(dead: str, policy: str) -> Move:
    """Return the move of a letter that fails because those of its `after` that *dead* names are dead."""
    failure = Failure(
        error_type="DependencyFailed",
        message=f"it did not run, because it waits for {dead} and has after_failure=fail; replay that one, then this",
        category=Category.PERMANENT,
        rule="a letter of its after is dead",
        terminal=True,
        fingerprint=Why.AFTER_FAILED,
    )
    return Move(Status.FAILED, Why.AFTER_FAILED, counts=False, failure=failure, policy=policy)


def next_try(failures: int, policy: RetryPolicy, draw: float) -> NextTry:
    """Return when to repeat an operation of our own that has failed *failures* times in a row; there is no last try."""
    return NextTry(policy.delay(failures, draw), failures >= policy.max_attempts)


def is_retry(move: Move) -> bool:
    """Whether *move* is paid for from the retry budget."""
    return move.to is Status.PENDING and move.failure is not None


def held_back(move: Move, hold: float) -> Move:
    """Return a retry that waits for at least *hold* seconds: an empty budget delays, it never fails a letter."""
    return move if move.delay >= hold else msgspec.structs.replace(move, delay=hold)


def _after_loss(losses: int, reason: str, policy: RetryPolicy | PolicyChoice) -> Move:
    crashed = Failure(
        error_type="WorkerCrashed",
        message=f"its worker died {losses} times while running it ({reason})",
        category=Category.RESOURCE,
        rule=f"lost {losses} times of {MAX_LOSSES}",
        terminal=True,
        fingerprint=Why.WORKER_CRASHED,
    )
    applied = policy_for(policy, crashed).text
    if losses < MAX_LOSSES:
        return Move(Status.PENDING, reason, counts=False, loss=True, policy=applied)
    return Move(Status.FAILED, Why.WORKER_CRASHED, counts=False, loss=True, failure=crashed, policy=applied)


def _after_failure(attempts: int, failure: Failure, given: RetryPolicy | PolicyChoice, draw: float, age: float) -> Move:
    policy = policy_for(given, failure)
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
    """Keep the draw, too: `explain` needs it to say what another policy would have done."""
    return Move(Status.FAILED, why, failure=failure, draw=draw, policy=policy.text, age=age)


def next_delay(policy: RetryPolicy, attempts: int, draw: float, retry_after: float | None) -> float:
    """Return the wait after try number *attempts*; a Retry-After is a floor, with the jitter above it."""
    delay = policy.delay(attempts, draw)
    if retry_after is None:
        return delay
    floor = max(0.0, min(retry_after, _RETRY_AFTER_BOUND))
    return max(delay, floor + policy.spread(draw))
