"""
How many retries a queue can afford.

Owns the retry budget as a value: first attempts earn a share of a retry, time earns a
floor, retries spend. Backoff calms one letter; only a budget calms a fleet that failed
together. An empty budget delays and never fails a letter. Knows no clock and no store.
"""

from __future__ import annotations

import msgspec

from redrive.errors import PolicyError


class BudgetRules(msgspec.Struct, frozen=True, kw_only=True):
    """Retries at most *ratio* of first attempts, plus *floor* a second."""

    ratio: float = 0.2
    floor: float = 10.0  # retries a second that are always affordable
    burst: float = 100.0  # most that a quiet queue saves up
    longest: float = 300.0  # seconds; no retry is delayed for longer than this

    def __post_init__(self) -> None:
        """Refuse a budget that could never be paid back."""
        if self.floor <= 0 or self.ratio < 0 or self.burst < 0 or self.longest < 0:
            message = f"the retry budget {self!r} makes no sense: floor must be above 0, the rest not below 0"
            raise PolicyError(message)


class Budget(msgspec.Struct, frozen=True):
    """What is left (below zero: what is owed), and when that was counted."""

    tokens: float
    at: float


DEFAULT_BUDGET_RULES = BudgetRules()


def spend(budget: Budget | None, rules: BudgetRules, firsts: int, retries: int, now: float) -> tuple[Budget, float]:
    """
    Return the budget after *firsts* first attempts and *retries*, and the least wait for these retries.

    None is a budget that was never used: it is full. The wait is never negative and
    never above `rules.longest`; a clock that jumped back earns nothing and costs nothing.
    """
    before = budget or Budget(rules.burst, now)
    earned = firsts * rules.ratio + max(0.0, now - before.at) * rules.floor
    left = min(rules.burst, before.tokens + earned) - retries
    after = Budget(max(left, -rules.longest * rules.floor), now)
    return after, _wait(after, rules) if retries else 0.0


def _wait(after: Budget, rules: BudgetRules) -> float:
    if after.tokens >= 0.0:
        return 0.0
    return min(-after.tokens / rules.floor, rules.longest)
