"""
When a dependency gets a rest.

Owns the circuit breaker as a value: closed, open, half open with a few probes. The
store keeps it, so that all workers share one. Knows no clock: the caller brings `now`,
in seconds of any one clock. If the clock jumps back, a rest ends early: a
few probes too many do less harm than a breaker that stays open.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from redrive.errors import PolicyError


class BreakerState(StrEnum):
    """Closed lets all letters through, open none, half open a few."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerRules(msgspec.Struct, frozen=True, kw_only=True):
    """Open at this many failures and this share of failures within a window; rest; then probe."""

    failures: int = 5
    ratio: float = 0.5
    window: float = 60.0  # seconds
    open_for: float = 30.0  # seconds
    probes: int = 3  # successes needed to close, and most letters on trial at once

    def __post_init__(self) -> None:
        """Refuse a breaker that could never open, or never close."""
        if min(self.failures, self.probes) < 1 or min(self.window, self.open_for) <= 0 or not 0 <= self.ratio <= 1:
            message = f"the breaker rules {self!r} make no sense: failures and probes must be at least 1, "
            raise PolicyError(message + "window and open_for above 0, ratio from 0 to 1")


class Breaker(msgspec.Struct, frozen=True):
    """One dependency as its callers saw it lately; a new one is closed."""

    name: str
    state: BreakerState = BreakerState.CLOSED
    successes: int = 0  # closed: in this window; half open: probes that passed
    failures: int = 0  # in this window; once open, those that opened it
    since: float = 0.0  # when this window or this state began
    opened_at: float = 0.0
    probes_out: int = 0  # let through and not yet reported
    probed_at: float = 0.0  # when the last probe was let through
    rest: float = 0.0  # open, as other processes see it: seconds until the next probe


def look(breaker: Breaker, rules: BreakerRules, now: float) -> Breaker:
    """Return *breaker* as it stands at *now*: rested breakers are half open, old windows are empty."""
    match breaker.state:
        case BreakerState.OPEN if _over(breaker.opened_at, rules.open_for, now):
            return Breaker(breaker.name, BreakerState.HALF_OPEN, since=now, opened_at=breaker.opened_at)
        case BreakerState.HALF_OPEN if breaker.probes_out and _over(breaker.probed_at, rules.open_for, now):
            return msgspec.structs.replace(breaker, probes_out=0)
        case BreakerState.CLOSED if _over(breaker.since, rules.window, now):
            return Breaker(breaker.name, since=now)
    return breaker


def tell(breaker: Breaker, rules: BreakerRules, now: float) -> Breaker:
    """Return *breaker* as other processes see it at *now*: with the seconds that an open one still rests."""
    seen = look(breaker, rules, now)
    is_open = seen.state is BreakerState.OPEN
    return msgspec.structs.replace(seen, rest=seen.opened_at + rules.open_for - now) if is_open else seen


def record(breaker: Breaker, rules: BreakerRules, successes: int, failures: int, now: float) -> Breaker:
    """
    Return *breaker* after these outcomes.

    A half-open breaker cannot tell a probe from a letter that began before it opened;
    either is a fresh word about the dependency and counts. An open one ignores both.
    """
    seen = look(breaker, rules, now)
    match seen.state:
        case BreakerState.CLOSED:
            return _closed_after(seen, rules, successes, failures, now)
        case BreakerState.HALF_OPEN:
            return _half_open_after(seen, rules, successes, failures, now)
    return seen


def take_probes(breaker: Breaker, rules: BreakerRules, limit: int, now: float) -> tuple[Breaker, int]:
    """
    Return how many of *limit* letters may run now, and the breaker that remembers it.

    Probes that no worker reports are forgotten after `open_for`, so a crashed worker
    cannot keep the breaker half open.
    """
    seen = look(breaker, rules, now)
    if seen.state is BreakerState.CLOSED:
        return seen, max(0, limit)
    allowed = min(max(0, limit), _room(seen, rules))
    if not allowed:
        return seen, 0
    return msgspec.structs.replace(seen, probes_out=seen.probes_out + allowed, probed_at=now), allowed


def _closed_after(seen: Breaker, rules: BreakerRules, successes: int, failures: int, now: float) -> Breaker:
    good, bad = seen.successes + successes, seen.failures + failures
    if failures and bad >= rules.failures and bad >= rules.ratio * (good + bad):
        return _opened(seen.name, good, bad, now)
    return msgspec.structs.replace(seen, successes=good, failures=bad)


def _half_open_after(seen: Breaker, rules: BreakerRules, successes: int, failures: int, now: float) -> Breaker:
    if failures:
        return _opened(seen.name, seen.successes + successes, failures, now)
    passed = seen.successes + successes
    if passed >= rules.probes:
        return Breaker(seen.name, since=now)
    return msgspec.structs.replace(seen, successes=passed, probes_out=max(0, seen.probes_out - successes))


def _opened(name: str, successes: int, failures: int, now: float) -> Breaker:
    return Breaker(name, BreakerState.OPEN, successes, failures, since=now, opened_at=now)


def _room(seen: Breaker, rules: BreakerRules) -> int:
    if seen.state is BreakerState.OPEN:
        return 0
    return max(0, rules.probes - seen.successes - seen.probes_out)


def _over(start: float, span: float, now: float) -> bool:
    return not 0.0 <= now - start < span
