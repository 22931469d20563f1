"""
A policy that follows the newest failure.

Owns which policy each category has, how a letter says that its policy follows the category of its newest failure, what
a failure that happened elsewhere then changes, and which dead letters have used up their tries. Knows no clock and no
store.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from redrive.core.decide import MAX_LOSSES, Counted, Failed, decide
from redrive.core.letter import Category, Status
from redrive.core.policy import RetryPolicy
from redrive.core.policy.retry_policy import Backoff
from redrive.core.why import Why
from redrive.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redrive.core.letter import Draft, Failure, Letter
    from redrive.core.moves import Move

CHOICE, RETRIES, JITTER = "workflow-policy", "workflow-max-retries", "workflow-jitter"  # headers of the letter
_AGREED = frozenset({CHOICE, RETRIES, JITTER})
BY_CATEGORY = "category"  # the value of CHOICE in a letter whose policy follows

POLICIES: Mapping[Category, RetryPolicy] = {
    Category.TRANSIENT: RetryPolicy.EXPONENTIAL,
    Category.NETWORK: RetryPolicy.EXPONENTIAL,
    Category.RESOURCE: RetryPolicy.LINEAR,
    Category.PERMISSION: RetryPolicy.NEVER,
    Category.VALIDATION: RetryPolicy.NEVER,
    Category.PERMANENT: RetryPolicy.NEVER,
}


class Follows(NamedTuple):
    """What a letter says of the policies that it follows."""

    max_retries: int | None
    jitter: str

    def policy(self, category: Category) -> RetryPolicy:
        """Return the policy of *category* with this many retries after the first failure."""
        return adjusted(POLICIES[category], self.max_retries, self.jitter)


def follows(headers: Iterable[tuple[str, bytes]]) -> Follows | None:
    """Return what a letter with these *headers* says; None if its policy never changes."""
    told = {name: value.decode("utf-8", "replace") for name, value in headers}
    if told.get(CHOICE) != BY_CATEGORY:
        return None
    retries = told.get(RETRIES, "")
    return Follows(int(retries) if retries.isdecimal() else None, told.get(JITTER, "none"))


def renewed(letter: Letter, draft: Draft) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of *letter* when a new cycle begins: *draft* says anew how its policy was chosen."""
    kept = [pair for pair in letter.headers if pair[0] not in _AGREED]
    return (*kept, *(pair for pair in draft.headers if pair[0] in _AGREED))


def adjusted(policy: RetryPolicy, max_retries: int | None, jitter: str) -> RetryPolicy:
    """Return *policy* with that many retries and that jitter; `never` has neither, and `immediate` no jitter."""
    if policy.backoff is Backoff.NEVER or (max_retries is None and jitter == "none"):
        return policy
    attempts = policy.max_attempts if max_retries is None else max_retries + 1
    keeps = jitter == "none" or policy.backoff is Backoff.IMMEDIATE
    return dataclasses.replace(policy, max_attempts=attempts, jitter=policy.jitter if keeps else jitter)


def move_after(letter: Letter, draft: Draft) -> Move | None:
    """
    Return what the newer failure of *draft* makes of *letter*; None if it does not change where the letter is.

    That is what would become of it if its last run had failed so. Only a letter whose policy follows, and which waits
    for its retry or for a person, is moved. One that waits for a person by its caller's policy goes on waiting. One
    whose tries are used up begins a new cycle instead.
    """
    failure = draft.failure
    policy = None if failure is None or not _waits(letter) else _policy_after(letter, failure)
    if failure is None or policy is None:
        return None
    move = decide(Counted(max(1, letter.attempts)), Failed(failure), policy, draft.draw)
    return replace(move, why=Why.FAILED_ELSEWHERE) if move.to is Status.PENDING else move


def _policy_after(letter: Letter, failure: Failure) -> RetryPolicy | None:
    """Return the policy that decides after *failure*; None if the letter keeps its own, and its due time with it."""
    followed = follows(letter.headers)
    if followed is None:
        return RetryPolicy.NEVER if letter.status is Status.FAILED else None
    return RetryPolicy.NEVER if failure.terminal else followed.policy(failure.category)


def _waits(letter: Letter) -> bool:
    if letter.status is Status.PENDING:
        return True
    return letter.status is Status.FAILED and is_never(letter.applied_policy) and letter.losses < MAX_LOSSES


def is_never(policy: str | None) -> bool:
    """Whether a policy's text is that of `never`: its letter waits for a person."""
    try:
        return RetryPolicy.parse(policy or "never").backoff is Backoff.NEVER
    except PolicyError:  # another version of redrive wrote it
        return False


def used_up(draft: Draft, status: Status, policy: str | None) -> dict[str, int]:
    """Return what *draft* adds to its counters when it leaves a letter in *status*: `exhausted` if no try is left."""
    is_exhausted = draft.counters and status is Status.FAILED and not is_never(policy)
    return {"exhausted": 1} if is_exhausted else {}
