"""
Why a pending letter does not run yet.

Owns the rule and its words: `holds` names everything that stands between a letter and a worker, the most
lasting first, and no other module judges that. It has two callers. `explain` asks about one letter (its `Line`
and its `Standing`). A run that ends, or a look at the queues, asks about all letters of a kind in a queue
(the `Line` alone). `stores/waiting.py` gathers what it needs from any store. Knows no store and no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from redrive.core.breaker import Breaker, BreakerState

if TYPE_CHECKING:
    from collections.abc import Iterator

_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0
NAMED = 5  # letters that one waits for are named up to here, and counted beyond
_ENOUGH = 1.5  # from so many of the next greater unit on, a span is given in it


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that keeps letters from running; *seconds* until it is over, if that is known."""

    cause: str  # paused, worker, breaker, after, order, due, in_flight or rate
    text: str
    seconds: float | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the letters of one kind in one queue."""

    queue: str
    kind: str
    workers: int = 0  # live ones that take this kind from this queue
    breakers: tuple[Breaker, ...] = ()  # those that its handlers need
    paused: bool = False
    paused_by: str = ""
    reason: str = ""
    rate: float | None = None  # letters that the queue begins per second
    max_in_flight: int | None = None
    in_flight: int = 0  # letters of the whole queue


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where one pending letter stands, by its store's clock and books."""

    due_in: float = 0.0  # seconds; past ones are due
    after: tuple[tuple[str, str], ...] = ()  # id and status of a few letters that it waits for; "" if not kept any more
    after_count: int = 0  # how many there are
    earlier: str | None = None  # the letter of its key that goes first


def holds(line: Line, standing: Standing | None = None) -> list[Hold]:
    """Return what keeps the letters of *line* from running, or the one that stands as *standing* says."""
    found = [*_by_people(line), *_by_dependencies(line)]
    if standing is not None:
        found += [*_by_letters(standing), *_by_time(standing)]
    return found or list(_by_limits(line))


def span(seconds: float) -> str:
    """Return *seconds* as people say it, such as `7 s`, `59 min` or `3 days`."""
    if seconds < _ENOUGH * _MINUTE:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1g} s"
    if seconds < _ENOUGH * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < _ENOUGH * _DAY else f"{seconds / _DAY:.0f} days"


def _by_people(line: Line) -> Iterator[Hold]:
    if line.paused:
        by = f" by {line.paused_by}" if line.paused_by else ""
        why = f": {line.reason}" if line.reason else ""
        yield Hold(cause="paused", text=f"queue {line.queue} is paused{by}{why}")
    if not line.workers:
        yield Hold(cause="worker", text=f"no live worker takes {line.kind} from queue {line.queue}")


def _by_dependencies(line: Line) -> Iterator[Hold]:
    for breaker in line.breakers:
        if breaker.state is BreakerState.OPEN:
            text = f"breaker {breaker.name} is open, next probe in {span(breaker.rest)}"
            yield Hold(cause="breaker", text=text, seconds=breaker.rest)
        elif breaker.state is BreakerState.HALF_OPEN:
            text = f"breaker {breaker.name} is half open: a few letters try it before all others"
            yield Hold(cause="breaker", text=text)


def _by_letters(standing: Standing) -> Iterator[Hold]:
    if standing.earlier is not None:
        yield Hold(cause="order", text=f"waits for the letter of its key that goes first: {standing.earlier}")
    if standing.after_count:
        named = [f"{other} ({status})" if status else "one that is no longer kept" for other, status in standing.after]
        more = standing.after_count - len(named)
        count = "1 other letter" if standing.after_count == 1 else f"{standing.after_count} other letters"
        told = ", ".join([*named, f"{more} more"] if more > 0 else named)
        yield Hold(cause="after", text=f"waits for {count} (after): {told}")


def _by_time(standing: Standing) -> Iterator[Hold]:
    if standing.due_in > 0:
        yield Hold(cause="due", text=f"due in {span(standing.due_in)}", seconds=standing.due_in)


def _by_limits(line: Line) -> Iterator[Hold]:
    """Name the queue's own limits: they hold a letter only while nothing else does."""
    if line.max_in_flight is not None and line.in_flight >= line.max_in_flight:
        text = f"queue {line.queue} runs at most {line.max_in_flight} at once, and {line.in_flight} run"
        yield Hold(cause="in_flight", text=text)
    if line.rate is not None:
        yield Hold(cause="rate", text=f"queue {line.queue} begins at most {line.rate:g} a second")
