"""
Time limits of many, with few timers.

Owns when a run that takes too long is told of: all runs with the same span share one timer,
because the one that began first is also the first that is out of time. Setting and lifting a
limit costs an entry in a dictionary, so that a run which ends in time pays for no timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

T = TypeVar("T")


class Limit(Generic[T]):
    """Tells *expired* of each thing that was held for *span* seconds and not let go."""

    __slots__ = ("_expired", "_held", "_loop", "_span", "_timer")

    def __init__(self, span: float, expired: Callable[[T], None], loop: asyncio.AbstractEventLoop) -> None:
        self._span, self._expired, self._loop = span, expired, loop
        self._held: dict[T, float] = {}  # in the order of their deadlines
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, thing: T) -> None:
        """Let the time of *thing* run from now."""
        self._held[thing] = deadline = self._loop.time() + self._span
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._ring)

    def let_go(self, thing: T) -> None:
        """Forget *thing*; one that is not held is fine. The timer stays: others come, and it may ring for nobody."""
        self._held.pop(thing, None)

    def close(self) -> None:
        """Forget everything; may be called twice."""
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        now = self._loop.time()
        late = [thing for thing, deadline in self._held.items() if deadline <= now]
        for thing in late:
            del self._held[thing]
        first = next(iter(self._held.values()), None)
        self._timer = None if first is None else self._loop.call_at(first, self._ring)
        for thing in late:
            self._expired(thing)
