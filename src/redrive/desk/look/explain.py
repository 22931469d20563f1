"""
Say why a letter stands where it stands, and where another policy would have put it.

Owns the words. Every number comes from the attempt log or from `core/policy` and
`core/decide.py`, what a letter waits for from `core/waiting.py`: this file has no rule and no formula
of its own.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from redrive.core.decide import Counted, Failed, decide, next_delay, policy_for
from redrive.core.letter import Category, Failure, Status
from redrive.core.policy import LONGEST, RetryPolicy
from redrive.core.policy.retry_policy import Backoff
from redrive.core.waiting import Hold
from redrive.core.why import Why, why_of
from redrive.desk.look import inspect
from redrive.desk.look.views import traceback_of
from redrive.errors import PolicyError
from redrive.stores.waiting import holds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.decide import PolicyChoice
    from redrive.core.letter import Letter, Try
    from redrive.stores.contract import Store

_MOST_STEPS = 100
_ALMOST_ONE = 1.0 - 2.0**-53
_EXPECTED = 0.5
_SAME = 1e-6
_ENDS = frozenset({Why.TERMINAL, Why.EXHAUSTED, Why.OUT_OF_TIME, Why.REDRIVE_FAULT})  # no wait follows
_FATES = frozenset({Why.WORKER_CRASHED, Why.REDRIVE_FAULT})  # ends that no policy has a say in


class TryExplained(msgspec.Struct, frozen=True, kw_only=True):
    """One try: what was raised, which rule judged it, and how its wait came about."""

    attempt: int
    at: datetime
    why: str
    error_type: str
    error: str
    category: str
    rule: str
    policy: str
    wait: float | None  # seconds by the policy's formula, before cap and jitter
    capped: float | None  # after the cap, before jitter
    draw: float
    delay: float  # as it was: after jitter, Retry-After and retry budget
    retry_after: float | None  # seconds that the error asked for
    place: str  # module:function:line in the user's code
    note: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a letter stands where it stands."""

    id: str
    status: str
    why: str | None
    policy: str | None
    policy_source: str
    attempts: int
    losses: int
    cycles: int
    tries: list[TryExplained]
    story: list[str]
    holds: list[Hold]  # pending: what keeps it from running, the most lasting first
    traceback: str  # the newest of this cycle


class Supposed(msgspec.Struct, frozen=True, kw_only=True):
    """One try as another policy would have had it."""

    attempt: int
    assumed: bool  # beyond the log: supposes that it fails as the last one did
    error_type: str
    to: str
    why: str
    delay: float
    least: float
    most: float


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The schedule another policy would have given to the same failures; the tries run as long as they did."""

    id: str
    policy: str
    tries: list[Supposed]
    more: bool  # True if the schedule goes on beyond what is listed
    total: float
    least: float
    most: float
    ends: str


async def explained(store: Store, letter_id: str) -> Explanation:
    """Explain the letter, and what it waits for; raise LetterNotFound."""
    letter = await inspect.show(store, letter_id)
    return explain(letter, await holds_of(store, letter))


def explain(letter: Letter, holds: Sequence[Hold] = ()) -> Explanation:
    """Return which rule judged each try, which policy applied, each delay, why the letter moved and what holds it."""
    tries = [_explained(one) for one in letter.tries]
    source = _policy_source(letter)
    return Explanation(
        id=letter.id,
        status=str(letter.status),
        why=letter.why,
        policy=letter.applied_policy or letter.policy,
        policy_source=source,
        attempts=letter.attempts,
        losses=letter.losses,
        cycles=letter.cycles,
        tries=tries,
        story=_story(letter, source, tries, holds),
        holds=list(holds),
        traceback=traceback_of(letter.tries),
    )


def what_if(letter: Letter, policy: RetryPolicy | PolicyChoice) -> WhatIf:
    """Return the schedule that *policy* would have given to the failures of the newest cycle that had any."""
    failures = _failures(letter)
    steps: list[Supposed] = []
    shift = 0.0  # how much longer than in truth the supposed waits were, until now
    while len(steps) < _MOST_STEPS and (not steps or steps[-1].to == Status.PENDING):
        past = failures[min(len(steps), len(failures) - 1)]
        assumed = len(steps) >= len(failures)
        steps.append(_supposed(past, policy, len(steps) + failures[0].attempt, shift, assumed=assumed))
        shift += steps[-1].delay - (0.0 if assumed else past.delay)
    more, waited = steps[-1].to == Status.PENDING, sum(step.delay for step in steps)
    return WhatIf(
        id=letter.id,
        policy=" / ".join(dict.fromkeys(policy_for(policy, past.failure).text for past in failures)),
        tries=steps,
        more=more,
        total=waited,
        least=sum(step.least for step in steps),
        most=sum(step.most for step in steps),
        ends=_ending(steps, waited, more=more),
    )


# ---------------------------------------------------------------------- what happened


def _explained(one: Try) -> TryExplained:
    policy = _read(one.policy)
    waits = bool(one.error_type) and why_of(one.why) not in _ENDS
    return TryExplained(
        attempt=one.attempt,
        at=one.at,
        why=one.why,
        error_type=one.error_type,
        error=one.error,
        category=one.category,
        rule=one.rule,
        policy=one.policy,
        wait=_uncapped(policy, one.attempt) if policy and waits else None,
        capped=_capped(policy, one.attempt) if policy and waits else None,
        draw=one.draw,
        delay=one.delay,
        retry_after=one.retry_after,
        place=one.place,
        note=_note(one, policy) if waits else "",
    )


def _note(one: Try, policy: RetryPolicy | None) -> str:
    asked = "" if one.retry_after is None else f"the error asked for {one.retry_after:.3g} s (Retry-After)"
    if policy is None:
        return asked or ("the policy cannot be computed here" if one.policy else "")
    by_policy = next_delay(policy, one.attempt, one.draw, one.retry_after)
    if one.delay > by_policy + _SAME:
        return f"the policy alone gave {by_policy:.3g} s; the retry budget of the queue held it longer"
    return asked


def _story(letter: Letter, source: str, tries: Sequence[TryExplained], holds: Sequence[Hold]) -> list[str]:
    lines = [f"{letter.status} because: {letter.why or 'it was accepted and has not run yet'}"]
    if letter.status is Status.PENDING:
        lines += [hold.text for hold in holds] or ["nothing holds it: it runs as soon as a worker has room"]
    lines += [source, *(_line(one) for one in tries)]
    if letter.losses:
        lines.append(f"its worker was lost while running it, losses: {letter.losses}; those tries do not count")
    if letter.cycles:
        times = "once" if letter.cycles == 1 else f"{letter.cycles} times"
        lines.append(f"was replayed {times} before; `show` lists those cycles")
    return lines


def _line(one: TryExplained) -> str:
    if not one.error_type:
        return f"try {one.attempt}: {one.why}; it does not count against the letter"
    where = f" at {one.place}" if one.place else ""
    judged = f"try {one.attempt}: {one.error_type}{where} is {one.category} by rule: {one.rule}; {one.why}"
    return f"{judged}, {_wait_words(one)}" if one.wait is not None else judged


def _wait_words(one: TryExplained) -> str:
    words = f"waited {one.delay:.3g} s (formula {one.wait:.3g} s, capped {one.capped:.3g} s, draw {one.draw:.3g})"
    return f"{words}; {one.note}" if one.note else words


def _policy_source(letter: Letter) -> str:
    if letter.policy:
        return f"policy {letter.policy} was given when it was enqueued"
    if letter.applied_policy:
        return f"policy {letter.applied_policy} is its handler's"
    return "no policy was asked yet"


def _capped(policy: RetryPolicy, attempt: int) -> float:
    return replace(policy, jitter="none").delay(attempt, 0.0)


def _uncapped(policy: RetryPolicy, attempt: int) -> float:
    return replace(policy, jitter="none", cap=LONGEST).delay(attempt, 0.0)


def _read(text: str) -> RetryPolicy | None:
    try:
        policy = RetryPolicy.parse(text) if text else None
    except PolicyError:  # another version of the code wrote it
        return None
    return None if policy is None or policy.backoff is Backoff.CUSTOM else policy  # its function is in the worker


# ---------------------------------------------------------------------- what would have happened


class _Past(msgspec.Struct, frozen=True):
    """A failure that happened, and what it was decided by."""

    failure: Failure
    attempt: int = 1
    draw: float = _EXPECTED
    age: float = 0.0
    delay: float = 0.0
    fate: str = ""  # why it died, if no policy had a say in that


def _supposed(past: _Past, given: RetryPolicy | PolicyChoice, attempt: int, shift: float, *, assumed: bool) -> Supposed:
    policy = policy_for(given, past.failure)
    draw = _EXPECTED if assumed else past.draw
    move = decide(Counted(attempt), Failed(past.failure), policy, draw, age=past.age + shift)
    waits = move.to is Status.PENDING
    return Supposed(
        attempt=attempt,
        assumed=assumed,
        error_type=past.failure.error_type,
        to=str(move.to),
        why=past.fate or move.why,
        delay=move.delay,
        least=next_delay(policy, attempt, 0.0, past.failure.retry_after) if waits else 0.0,
        most=next_delay(policy, attempt, _ALMOST_ONE, past.failure.retry_after) if waits else 0.0,
    )


def _failures(letter: Letter) -> list[_Past]:
    """Return the failures of the newest cycle that had any."""
    cycles = (letter.tries, *(cycle.tries for cycle in reversed(letter.failure_history)))
    for tries in cycles:
        if failed := [_past(one) for one in tries if one.error_type and one.attempt]:
            return failed
    return [_Past(Failure(error_type="", message="", category=Category.TRANSIENT, rule="supposed"))]


def _past(one: Try) -> _Past:
    fate = one.why if why_of(one.why) in _FATES else ""
    failure = Failure(
        error_type=one.error_type,
        message=one.error,
        category=Category(one.category) if one.category in list(Category) else Category.TRANSIENT,
        rule=one.rule,
        terminal=why_of(one.why) is Why.TERMINAL or bool(fate),
        retry_after=one.retry_after,
    )
    return _Past(failure, one.attempt, one.draw, one.age, one.delay, fate)


def _ending(steps: Sequence[Supposed], age: float, *, more: bool) -> str:
    tries = "1 try" if len(steps) == 1 else f"{len(steps)} tries"
    if more:
        return f"still trying after {tries} and {age:.3g} s"
    return f"failed ({steps[-1].why}) after {tries} and {age:.3g} s of waiting"
