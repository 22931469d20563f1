"""
What makes sense in a retry policy.

Owns the bounds of every number and text of a policy, and the sentence about each that is out of
bounds. Knows no formula.
"""

from __future__ import annotations

import string
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.core.policy.retry_policy import RetryPolicy

LONGEST = 10 * 365 * 86_400.0  # ten years: longer spans are slips, and would not fit a store's clock
_NAME_LIMIT = 80  # characters
_NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")


def problems_of(policy: RetryPolicy) -> list[str]:
    """Return every problem of *policy*, as a part of a sentence each."""
    spans = [_span_problem(name, getattr(policy, name)) for name in ("first", "cap")]
    if policy.total is not None:
        spans.append(_span_problem("total", policy.total))
    found = [problem for problem in spans if problem]
    if not found and policy.first > policy.cap:
        found.append(f"its first wait of {policy.first:g} s is above its cap of {policy.cap:g} s")
    if not _is_number(policy.multiplier) or policy.multiplier < 1:
        found.append(f"multiplier is {policy.multiplier!r} and must be a number from 1 up")
    if type(policy.max_attempts) is not int or policy.max_attempts < 1:
        found.append(f"max_attempts is {policy.max_attempts!r} and must be a whole number from 1 up (it counts tries)")
    if policy.backoff == "never" and policy.max_attempts != 1:
        found.append("never tries once; make it by RetryPolicy.never()")
    if span_of(policy.jitter) is None:
        found.append(f"jitter is {policy.jitter!r} and must be none, full, equal or additive(SECONDS)")
    if problem := _function_problem(policy):
        found.append(problem)
    return found + _list_problems("terminal_errors", policy) + _list_problems("retryable_errors", policy)


def _span_problem(name: str, value: object) -> str:
    if _is_number(value) and 0 <= value <= LONGEST:  # type: ignore[operator]
        return ""
    return f"{name} is {value!r} and must be a number of seconds from 0 to {LONGEST:.0f}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -inf < value < inf


def span_of(jitter: object) -> float | None:
    """Return the span of additive jitter, 0 for the other kinds, None for what is no jitter."""
    if jitter in ("none", "full", "equal"):
        return 0.0
    if not (isinstance(jitter, str) and jitter.startswith("additive(") and jitter.endswith(")")):
        return None
    try:
        span = float(jitter[len("additive(") : -1])
    except ValueError:
        return None
    return span if 0 <= span <= LONGEST else None


def _list_problems(name: str, policy: RetryPolicy) -> list[str]:
    if not isinstance(getattr(policy, name), (tuple, list, set, frozenset)):
        return [f"{name} must be a tuple of exception classes or their names, such as (ValueError,)"]
    return [
        f"{name} holds {entry!r}, which is neither an exception class nor the name of one"
        for entry in getattr(policy, name)
        if not (isinstance(entry, str) or (isinstance(entry, type) and issubclass(entry, BaseException)))
    ]


def _function_problem(policy: RetryPolicy) -> str:
    if policy.name and not is_name(policy.name):
        return f"name is {repr(policy.name)[:80]} and must be letters, digits, '.', '-' and '_', at most {_NAME_LIMIT}"
    if (policy.backoff == "custom") != (callable(policy.function) or bool(policy.name)):
        return "a custom policy, and no other, needs a function that takes the number of the try, or a registered name"
    return ""


def is_name(name: object) -> bool:
    """Whether a backoff function may be registered as *name*: the text of a policy holds it."""
    return isinstance(name, str) and 0 < len(name) <= _NAME_LIMIT and not set(name) - _NAME_CHARACTERS
