"""
The clock of leases, as one process moves it on.

Owns how much time this process measured, by a clock that never jumps, since it saw the shared one last. The server adds
that if the shared clock still stands where it was seen; otherwise another process has moved it, and this one only
reads it. Knows no lease.

What passes between the move of one process and the first look of another is lost if the other one moves the clock
next. So the process that moved it last goes on doing so, and another takes over only when that one has been silent for
longer than its own ticks are apart. Without this, two processes that tick twice in a row would take turns in adding the
moment between their two ticks, and the clock would all but stand still.

Workers tick at least three times in a lease. A longer silence means that the server was away or that this process was
stopped; no worker could renew its claims meanwhile, so one tick adds at most a third of a lease.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


_LONGEST = 20.0  # seconds that a tick may add while this process has renewed no claim: a third of the default lease


class Tick(NamedTuple):
    """What is asked of the server: where the clock was seen, and how many microseconds ago; and when that was asked."""

    seen: int | None
    passed: int
    asked: float


class Ticker:
    """What this process knows of the shared clock."""

    def __init__(self, *, manual: bool, now: Callable[[], float] = time.monotonic) -> None:
        """One that is *manual* never moves it: a test has a clock of its own."""
        self._manual, self._now = manual, now
        self._seen: int | None = None  # where it stood at the moment *since*, in microseconds
        self._since = 0.0
        self._moved_last = False  # whether this process moved it last, as far as it knows
        self._heard: float | None = None  # when the server answered last
        self._gaps: deque[float] = deque(maxlen=2)  # between ticks; two, because a beat and a sweep may fall together
        self._longest = _LONGEST

    def ask(self, lease: float | None = None) -> Tick:
        """Return by how much to move the clock on, in the moment in which that is sent; *lease* is that of a beat."""
        asked = self._now()
        if lease is not None:
            self._longest = lease / 3
        if self._heard is None or self._manual:
            return Tick(self._seen, 0, asked)
        self._gaps.append(asked - self._heard)
        passed = asked - self._since
        moves = self._moved_last or passed >= max(self._gaps)
        return Tick(self._seen, round(min(passed, self._longest) * 1e6) if moves else 0, asked)

    def heard(self, tick: Tick, clock: Any) -> None:
        """Note where the clock stands: as of when *tick* was asked if that moved it, otherwise as of the first look."""
        stands, moved = clock["lease_us"], clock["moved"]
        self._heard = self._now()
        if moved or stands != self._seen:
            self._since = tick.asked if moved else self._heard
        self._moved_last = moved or (self._moved_last and stands == self._seen)
        self._seen = stands
