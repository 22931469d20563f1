"""
Time limits for many runs, with few timers.

Owns when a run is out of time. Runs with the same timeout share one timer, armed for the oldest. Starting again
only updates a timestamp, so runs that finish in time cost no timer. Knows no letter and no handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.engine.clock import Timer, Timers


class Timed(Protocol):
    """Something that may take too long."""

    began: float  # when, by the timers' clock


T = TypeVar("T", bound=Timed)


class Limit(Generic[T]):
    """Calls *expired* with each thing that was held for *span* seconds without a new start or an end."""

    __slots__ = ("_expired", "_held", "_span", "_timer", "_timers")

    def __init__(self, span: float, expired: Callable[[T], None], timers: Timers) -> None:
        self._span, self._expired, self._timers = span, expired, timers
        self._held: dict[T, None] = {}  # a set that keeps its order
        self._timer: Timer | None = None

    def hold(self, thing: T) -> None:
        """Count the time of *thing* from now, also if it is held already."""
        thing.began = self._timers.time()
        self._held[thing] = None
        if self._timer is None:
            self._timer = self._timers.call_at(thing.began + self._span, self._ring)

    def let_go(self, thing: T) -> None:
        """Forget *thing*, held or not. The timer stays armed: the next run will need it."""
        self._held.pop(thing, None)

    def close(self) -> None:
        """Forget everything; may be called twice."""
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        now = self._timers.time()
        late = [thing for thing in self._held if thing.began + self._span <= now]
        for thing in late:
            del self._held[thing]
        first = min((thing.began for thing in self._held), default=None)
        self._timer = None if first is None else self._timers.call_at(first + self._span, self._ring)
        for thing in sorted(late, key=lambda thing: thing.began):
            self._expired(thing)
