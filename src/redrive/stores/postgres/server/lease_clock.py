"""
The clock of leases, as one process moves it on.

Owns how much time this process measured, by a clock that never jumps, since it saw the shared one last. The server adds
that if the shared clock still stands where it was seen; otherwise another process has moved it, and this one only
reads it. Knows no lease.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple


class Tick(NamedTuple):
    """What is asked of the server: where the clock was seen, and how many microseconds ago; and when that was asked."""

    seen: int | None
    passed: int
    asked: float


class Ticker:
    """What this process knows of the shared clock."""

    def __init__(self, *, manual: bool) -> None:
        """One that is *manual* never moves it: a test has a clock of its own."""
        self._manual = manual
        self._seen: int | None = None  # where it stood at the moment *since*, in microseconds
        self._since = 0.0

    def ask(self) -> Tick:
        """Return by how much to move the clock on, in the moment in which that is sent."""
        asked = time.monotonic()
        known = self._seen is not None and not self._manual
        return Tick(self._seen, round((asked - self._since) * 1e6) if known else 0, asked)

    def heard(self, tick: Tick, clock: Any) -> None:
        """Note where the clock stands: as of when *tick* was asked if that moved it, otherwise as of this moment."""
        self._seen, self._since = clock["lease_us"], tick.asked if clock["moved"] else time.monotonic()
