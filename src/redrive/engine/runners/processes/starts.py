"""
Starts of children that fail.

Owns how long the pool rests before it starts another, longer after each failure in a row, and when it gives letters
back that wait for a child. Knows no child and no letter.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redrive.core.decide import Interrupted
from redrive.core.policy import RetryPolicy
from redrive.core.why import Why

if TYPE_CHECKING:
    from collections.abc import Callable

_FEW = 3  # starts that fail in a row before waiting letters are given back
_RESTS = RetryPolicy.exponential(0.4, 30.0, jitter="none")  # between starts that fail


class Starts:
    """Counts the starts that failed in a row; calls *rested* when the next one may be tried."""

    def __init__(self, rested: Callable[[], None]) -> None:
        self.failures = 0
        self._rested = rested
        self._rest: asyncio.TimerHandle | None = None

    @property
    def is_resting(self) -> bool:
        """Whether no child may be started now."""
        return self._rest is not None

    def succeeded(self) -> None:
        """Note that a child has started."""
        self.failures = 0

    def failed(self, why: str) -> Interrupted | None:
        """Rest, longer each time; return what becomes of the letters that wait, None if they go on waiting."""
        self.failures += 1
        rest = _RESTS.delay(self.failures, 0.0)
        if self._rest is not None:
            return None
        self._rest = asyncio.get_running_loop().call_later(rest, self._end_rest)
        return Interrupted(Why.NO_WORKER_PROCESS.naming(why), wait=rest) if self.failures >= _FEW else None

    def close(self) -> None:
        """Rest no longer, and start nothing."""
        if self._rest is not None:
            self._rest.cancel()

    def _end_rest(self) -> None:
        self._rest = None
        self._rested()
