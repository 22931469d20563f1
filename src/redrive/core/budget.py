"""
How many retries a queue can afford.

Owns the retry budget as a value: first attempts earn a share of a retry, time earns a
floor, retries spend. Backoff calms one letter; only a budget calms a fleet that failed
together. An empty budget delays and never fails a letter. A queue has one only if it asks for
it: otherwise the policy's formula is what happens. Knows no clock and no store.
"""

from __future__ import annotations

from math import isfinite

import msgspec

from redrive.core.checks.drafts import shown
from redrive.errors import PolicyError

ON, OFF = "on", "off"


class BudgetRules(msgspec.Struct, frozen=True, kw_only=True):
    """Retries at most *ratio* of first attempts, plus *floor* a second."""

    ratio: float = 0.2
    floor: float = 10.0  # retries a second that are always affordable
    burst: float = 100.0  # most that a quiet queue saves up
    longest: float = 300.0  # seconds; no retry is delayed for longer than this

    def __post_init__(self) -> None:
        """Refuse a budget that could never be paid back."""
        rules = msgspec.structs.asdict(self)
        problems = [
            f"{name} is {value!r} and must be a number" for name, value in rules.items() if not _is_number(value)
        ]
        if not problems and (self.floor <= 0 or min(rules.values()) < 0):
            problems = ["floor must be above 0, the rest not below 0"]
        if problems:
            raise PolicyError(f"the retry budget {self.text!r} makes no sense: " + "; ".join(problems))

    @property
    def text(self) -> str:
        """How it is written; `parse` reads it."""
        return ",".join(f"{name}={value}" for name, value in msgspec.structs.asdict(self).items())

    @classmethod
    def parse(cls, text: str) -> BudgetRules | None:
        """Read `on`, `off` (None), or `ratio=0.2,floor=10,burst=100,longest=300`; raise PolicyError."""
        said = text.strip().lower()
        if said in (ON, OFF):
            return cls() if said == ON else None
        try:
            pairs = [part.partition("=") for part in said.split(",")]
            rules = {name.strip(): float(value) for name, _, value in pairs}
            if len(rules) < len(pairs) or not rules.keys() <= set(cls.__struct_fields__):
                raise ValueError  # noqa: TRY301 - one sentence for all of them
        except ValueError:
            names = ", ".join(cls.__struct_fields__)
            raise PolicyError(
                f"cannot read the retry budget {text!r}: it is {ON}, {OFF}, or some of {names} as numbers, "
                "such as ratio=0.2,floor=10,burst=100"
            ) from None
        return cls(**rules)


class Budget(msgspec.Struct, frozen=True):
    """What is left (below zero: what is owed), and when that was counted."""

    tokens: float
    at: float


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def budget_of(given: BudgetRules | str | bool) -> BudgetRules | None:  # noqa: FBT001 - "on" and "off" as users say it
    """Return the rules that the user asked for: True means the defaults, False none; raise PolicyError."""
    if isinstance(given, bool):
        return BudgetRules() if given else None
    if isinstance(given, str):
        return BudgetRules.parse(given)
    if not isinstance(given, BudgetRules):
        raise PolicyError(
            f"retry_budget is {shown(given)}; give True, False, or a text such as 'ratio=0.2,floor=10,burst=100'"
        )
    return given


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
