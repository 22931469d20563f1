"""
The rate of a replay.

Owns the pauses that keep a replay at or below a number of letters a second. Knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.engine.clock import Clock

_NAP = 0.2  # seconds; a request to stop is noticed after at most this long


class ReplayRate:
    """Pauses so that the replay sends no more than *rate* letters a second; None means no limit."""

    def __init__(self, rate: float | None, clock: Clock, is_stopping: Callable[[], bool]) -> None:
        self._rate, self._clock, self._is_stopping = rate, clock, is_stopping
        self._began, self._sent = clock.monotonic(), 0

    def pause(self, sent: int) -> None:
        """Wait until *sent* more letters are within the rate, or until the replay is asked to stop."""
        self._sent += sent
        while self._rate and not self._is_stopping():
            ahead = self._sent / self._rate - (self._clock.monotonic() - self._began)
            if ahead <= 0:
                return
            self._clock.block(min(ahead, _NAP))
