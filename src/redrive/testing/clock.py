"""
A clock that only the test moves.

Owns the time and the draws of a test, for the engine and for a store. Knows no letter and no worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from itertools import count
from typing import TYPE_CHECKING, Any

from redrive.stores.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable


class _Alarm:
    """A call at a later time."""

    def __init__(self, callback: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self.callback, self.given, self.cancelled = callback, given, False

    def cancel(self) -> None:
        """Cancel the call."""
        self.cancelled = True


class FakeClock(ManualClock):
    """
    A clock that only the test moves, and chosen draws.

    Serves the engine and a store; time limits of handlers follow it, too. `draws` are the numbers that jitter will
    draw, first to last; after them, every draw is 0.5.
    """

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[float] = []
        self._reached = 0.0  # seconds; the due time of the newest call
        self._order = count()
        self._alarms: list[tuple[float, int, _Alarm]] = []  # a heap
        self._loop: asyncio.AbstractEventLoop | None = None

    def monotonic(self) -> float:
        """Return the seconds that have passed, plus a constant."""
        return max(self._lease_us / 1_000_000, self._reached)

    time = monotonic

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass; handlers that are out of time by then are stopped in the event loop's next iteration."""
        super().advance(seconds)
        if self._loop is not None and self._alarms:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and its handlers with it
                self._loop.call_soon_threadsafe(self._ring)

    def timers(self) -> FakeClock:
        """Return itself: this clock measures the handlers' time limits."""
        self._loop = asyncio.get_running_loop()
        return self

    def call_at(self, when: float, callback: Callable[..., Any], *given: Any) -> _Alarm:
        """Call *callback* once the clock has reached *when*."""
        alarm = _Alarm(callback, given)
        heapq.heappush(self._alarms, (when, next(self._order), alarm))
        return alarm

    def call_later(self, delay: float, callback: Callable[..., Any], *given: Any) -> _Alarm:
        """Call *callback* once the clock has advanced by *delay* seconds."""
        return self.call_at(self.monotonic() + delay, callback, *given)

    @property
    def next_alarm(self) -> float | None:
        """Seconds until the first time limit of a handler that runs, or None."""
        while self._alarms and self._alarms[0][2].cancelled:
            heapq.heappop(self._alarms)
        return max(0.0, self._alarms[0][0] - self.monotonic()) if self._alarms else None

    def _ring(self) -> None:
        while (left := self.next_alarm) is not None and left < 1e-6:  # noqa: PLR2004 - a microsecond, the clock's own step
            self._reached, _, alarm = heapq.heappop(self._alarms)
            alarm.callback(*alarm.given)

    def draw(self) -> float:
        """Return the next of `draws`, or 0.5."""
        return self.draws.pop(0) if self.draws else 0.5

    async def sleep(self, seconds: float) -> None:
        """Let *seconds* pass at once."""
        self.advance(seconds)
        await asyncio.sleep(0)  # other tasks run, as with a real sleep

    def block(self, seconds: float) -> None:
        """Let *seconds* pass at once."""
        self.advance(seconds)
