"""
Backoff functions by name.

Owns which function a name stands for in one process, and what such a function must return: a policy that a letter
carries can only name one. Knows no letter and no delay: `retry_policy` asks the function and bounds what it returns.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from redrive.core.policy.problems import LONGEST, is_name
from redrive.core.policy.retry_policy import RetryPolicy
from redrive.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TRIED = 20  # tries for which a function is asked when it is registered
_CUSTOM = "custom:"


class Backoffs:
    """The backoff functions that one process knows."""

    def __init__(self) -> None:
        self._functions: dict[str, Callable[[int], float]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._functions))

    def add(self, name: str, function: Callable[[int], float]) -> None:
        """Register *function* as *name*; raise PolicyError unless its waits are finite, not negative and bounded."""
        if not is_name(name):
            raise PolicyError(f"cannot register a backoff function as {name!r}: use letters, digits, '.', '-' and '_'")
        if self._functions.get(name, function) is not function:
            raise PolicyError(f"cannot register a second backoff function as {name!r}; give one of them another name")
        if problem := _problem(function):
            raise PolicyError(f"cannot register the backoff function {name!r}: {problem}")
        self._functions[name] = function

    def bound(self, policy: RetryPolicy) -> RetryPolicy:
        """Return *policy* with the function that it names; as it is, if it names none or an unknown one."""
        function = self._functions.get(policy.name) if policy.name else None
        return policy if function is None else replace(policy, function=function)

    def lacking(self, text: str | None) -> str:
        """Return the name in a policy's *text* that this process does not know; empty if it can use the policy."""
        if text is None or not text.startswith(_CUSTOM):
            return ""
        try:
            name = RetryPolicy.parse(text).name
        except PolicyError:  # another version of redrive wrote it
            return ""
        return "" if name in self._functions else name


def _problem(function: Callable[[int], float]) -> str:
    if not callable(function):
        return f"it is {type(function).__name__}, and must be a function that takes the number of the try"
    for attempt in range(1, _TRIED + 1):
        try:
            wait = function(attempt)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            return f"it raised {type(error).__name__} for try {attempt}"
        if isinstance(wait, bool) or not isinstance(wait, (int, float)):
            return f"it returned {type(wait).__name__} for try {attempt}, and must return a number of seconds"
        if not isfinite(wait) or not 0 <= wait <= LONGEST:
            return f"it returned {wait} for try {attempt}, and must return seconds from 0 to {LONGEST:.0f}"
    return ""
