"""
What time it is, for stores.

Owns the two clocks that every store reads: the wall clock, which says when a letter is
due and may jump, and the lease clock, which says how long a claim lasts and never does.
Knows no letter.
"""

from __future__ import annotations

import sys
import time
from typing import Protocol

_START_US = 1_767_225_600_000_000  # where a manual clock starts: 2026-01-01T00:00:00Z
_START_MS = 1_000_000


class StoreClock(Protocol):
    """The clocks a store reads."""

    def wall_us(self) -> int:
        """Return whole microseconds since the epoch, UTC; it jumps when an administrator or NTP sets the clock."""

    def lease_ms(self) -> int:
        """Return whole milliseconds of a clock that only ever goes forward, at the pace of time."""


class SystemStoreClock:
    """The machine's own clocks; the lease clock counts from boot, so all its processes agree on it."""

    def wall_us(self) -> int:
        """Return whole microseconds since the epoch, UTC."""
        return time.time_ns() // 1_000

    def lease_ms(self) -> int:
        """Return milliseconds since boot, time asleep included where the system can tell."""
        if sys.platform == "linux":
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock for tests: time passes when told to."""

    def __init__(self, wall_us: int = _START_US, lease_ms: int = _START_MS) -> None:
        self._wall_us = wall_us
        self._lease_us = lease_ms * 1_000

    def wall_us(self) -> int:
        """Return the wall clock's microseconds."""
        return self._wall_us

    def lease_ms(self) -> int:
        """Return the lease clock's milliseconds."""
        return self._lease_us // 1_000

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass on both clocks; time does not go back."""
        if seconds < 0:
            message = f"cannot advance a clock by {seconds} s: time does not go back; use jump to set the wall clock"
            raise ValueError(message)
        self._wall_us += round(seconds * 1_000_000)
        self._lease_us += round(seconds * 1_000_000)

    def jump(self, seconds: float) -> None:
        """Set the wall clock *seconds* forward, or back if negative; the lease clock does not notice."""
        self._wall_us += round(seconds * 1_000_000)
