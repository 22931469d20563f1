"""
Work items between two tries.

Owns those that wait for their retry, and the one timer that is set for the first of them. Knows no worker and no slot:
*due* gets the work items whose wait is over, *broke* every fault of ours on the way there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redrive.sources.kafka.records.delay_queue import DelayQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.records.record import Record


class WaitingRetries:
    """Records that wait for their next try; all methods are called on the event loop's thread."""

    def __init__(self, clock: Clock, due: Callable[[list[Record]], None], broke: Callable[[Exception], None]) -> None:
        self._clock, self._due, self._broke = clock, due, broke
        self._waiting: DelayQueue[Record] = DelayQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    @property
    def next_due(self) -> float | None:
        """When the first of them is due, by the engine's clock."""
        return self._waiting.next_due

    def add(self, record: Record, now: float, delay: float) -> None:
        """Let *record* wait for *delay* seconds from *now*."""
        self._waiting.push(now + delay, record)
        self._arm(now)

    def remove(self, unwanted: Callable[[Record], bool]) -> list[Record]:
        """Remove and return all that are *unwanted*."""
        return self._waiting.remove(unwanted)

    def cancel(self) -> list[Record]:
        """Stop the timer; return all that wait."""
        self._stop_timer()
        return self._waiting.remove(lambda _record: True)

    def wake(self) -> None:
        """Hand on what is due by now, and wait for the next."""
        self._stop_timer()
        now = self._clock.monotonic()
        try:
            self._due(self._waiting.pop_due(now))
            self._arm(now)
        except Exception as error:  # noqa: BLE001 - the event loop called this and would swallow it
            self._broke(error)

    def _arm(self, now: float) -> None:
        """Set the timer for the first retry, unless it is set for that time or earlier."""
        first = self._waiting.next_due
        if first is None or (self._timer is not None and self._timer_due <= first):
            return
        self._stop_timer()
        self._timer_due = first
        self._timer = asyncio.get_running_loop().call_later(max(0.0, first - now), self.wake)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
