"""
The four retry policies of the workflow queue.

Owns what their words mean and how a caller names a policy. Knows no delay formula (`core.policy`), and not which
category gets which policy (`core.following`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from redrive.core import following
from redrive.core.policy import RetryPolicy as Policy
from redrive.core.policy.retry_policy import Backoff
from redrive.drafts import policy_text
from redrive.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redrive.core.letter import Category

_CUSTOM = "custom:"  # the text of a policy that names a registered backoff function
MOST_RETRIES = 1_000  # of one task; more is a slip


class RetryPolicy(StrEnum):
    """When a failed workflow runs again. `.policy` is the value that the rest of redrive uses."""

    NEVER = "never"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"
    IMMEDIATE = "immediate"

    @property
    def policy(self) -> Policy:
        """The policy behind the word, with three retries."""
        return _POLICIES[self]


_POLICIES: Mapping[RetryPolicy, Policy] = {
    RetryPolicy.NEVER: Policy.NEVER,
    RetryPolicy.LINEAR: Policy.LINEAR,
    RetryPolicy.EXPONENTIAL: Policy.EXPONENTIAL,
    RetryPolicy.IMMEDIATE: Policy.IMMEDIATE,
}
_WORDS: Mapping[Backoff, RetryPolicy] = {Backoff(word.value): word for word in RetryPolicy}

AnyPolicy = RetryPolicy | Policy | str


def for_category(category: Category) -> RetryPolicy:
    """Return the policy of *category*."""
    return _WORDS[following.POLICIES[category].backoff]


def policy_of(given: AnyPolicy, max_retries: int | None, jitter: str = "none") -> Policy:
    """Return *given* as a value that allows *max_retries* retries after the failure that brought the task here."""
    policy = Policy.parse(policy_text(given)) if isinstance(given, Policy) else _policy(given)
    return following.adjusted(policy, None if max_retries is None else checked(max_retries), jitter)


def _policy(text: str) -> Policy:
    return Policy.parse(text) if text.startswith(_CUSTOM) else read(text).policy


def read(word: str) -> RetryPolicy:
    """Return the policy that *word* names; raise PolicyError."""
    try:
        return RetryPolicy(word)
    except ValueError:
        words = ", ".join(RetryPolicy)
        raise PolicyError(
            f"cannot use {str(word)[:40]!r} as a retry policy: it must be one of {words}, or custom:name=NAME"
        ) from None


def checked(max_retries: object) -> int:
    """Return *max_retries*; raise PolicyError unless it is a number of retries."""
    if type(max_retries) is int and 0 <= max_retries <= MOST_RETRIES:
        return max_retries
    raise PolicyError(f"max_retries is {str(max_retries)[:40]} and must be a whole number from 0 to {MOST_RETRIES}")


def word_of(text: str | None) -> RetryPolicy | str:
    """Return the word for a policy's text: one of the four, or what else the policy calls its backoff (`custom`)."""
    try:
        backoff = Policy.parse(text or "never").backoff
    except PolicyError:  # another version of redrive wrote it
        return RetryPolicy.EXPONENTIAL
    return _WORDS.get(backoff, str(backoff))
