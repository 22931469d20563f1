"""
Adaptive concurrency.

Owns the opt-in rule for how many work items run at once: a few more while all slots are taken and tries go well, a
quarter less as soon as many tries fail or become much slower, always between two bounds. The rule itself
(`next_limit`) is pure. Knows no order, no offsets, no Kafka client.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redrive.core.decide import Failed, Lost

if TYPE_CHECKING:
    from collections.abc import Collection

    from redrive.core.decide import Interrupted, Outcome
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import Engine, OnOutcome
    from redrive.sources.kafka.config import ExecutionConfig
    from redrive.sources.kafka.execution.engine import ExecutionEngine

_log = logging.getLogger("redrive.kafka")
_LESS = 0.75  # part of the limit that is kept after a bad window
_STEPS = 32  # good windows from 0 to the upper bound
_BAD_SHARE = 0.1  # of the tries
_SLOW = 2.5  # times the usual duration; in a pool, one try ahead of it already doubles it
_QUICK = 0.005  # seconds; shorter tries never count as slow
_DRIFT = 1.02  # per window: the usual duration follows a dependency that stays slower
_ENOUGH = 10  # tries in a window before it counts


@dataclass(frozen=True, slots=True)
class ConcurrencyLimit:
    """How many may run at once, and how long a try usually takes in seconds; 0.0: unknown."""

    now: int
    usual: float = 0.0


@dataclass(slots=True)
class Window:
    """The tries that ended in one interval."""

    ended: int = 0
    failed: int = 0  # except terminal failures, which say nothing about load
    seconds: float = 0.0  # total duration
    full: bool = False  # whether all slots were taken at some time


def next_limit(limit: ConcurrencyLimit, seen: Window, *, least: int, most: int) -> ConcurrencyLimit:
    """Return the limit after *seen*: never below *least*, never above *most*."""
    if not seen.ended:
        return limit
    mean = seen.seconds / seen.ended
    usual = min(mean, limit.usual * _DRIFT) if limit.usual else mean
    if seen.failed > _BAD_SHARE * seen.ended or mean > max(_QUICK, _SLOW * usual):
        return ConcurrencyLimit(max(least, int(limit.now * _LESS)), usual)
    step = max(1, most // _STEPS) if seen.full else 0
    return ConcurrencyLimit(max(least, min(most, limit.now + step)), usual)


class AdaptiveEngine:
    """
    Times the tries that *inner* runs, and sets the slots of *owner* accordingly.

    It starts at the upper bound, the slots that *owner* has without it.
    """

    def __init__(self, inner: Engine[Any], owner: ExecutionEngine, least: int, interval: float, clock: Clock) -> None:
        self._inner, self._owner, self._interval, self._clock = inner, owner, interval, clock
        self._most = owner.slots
        self._least = min(least or max(1, self._most // 4), self._most)
        self._limit = ConcurrencyLimit(self._most)
        self._window = Window()
        self._since = clock.monotonic()

    @property
    def exhausted(self) -> bool:
        """Whether this engine takes no more letters until the process is recycled."""
        return self._inner.exhausted

    def recall(self, queues: Collection[str], why: Interrupted) -> None:
        """See `Engine.recall`."""
        self._inner.recall(queues, why)

    @property
    def leftovers(self) -> list[str]:
        """See `Engine.leftovers`."""
        return self._inner.leftovers

    @property
    def vacant(self) -> bool:
        """See `Engine.vacant`."""
        return self._inner.vacant

    def start(self, handler: Handler[Any], item: Any, ticket: object, done: OnOutcome) -> None:
        """Run *item*, and time it."""
        self._window.full = self._window.full or self._owner.running >= self._owner.slots
        self._inner.start(handler, item, (ticket, done, self._clock.monotonic()), self._ended)

    async def close(self, grace: float) -> None:
        """Wait up to *grace* seconds for what runs, then stop it."""
        await self._inner.close(grace)

    def interrupt(self) -> None:
        """Stop now."""
        self._inner.interrupt()

    def _ended(self, ticket: Any, outcome: Outcome) -> None:
        its_ticket, done, began = ticket
        now = self._clock.monotonic()
        window = self._window
        window.ended += 1
        window.seconds += now - began
        window.failed += isinstance(outcome, Lost) or (isinstance(outcome, Failed) and not outcome.failure.terminal)
        if now - self._since >= self._interval and window.ended >= _ENOUGH:
            self._adjust(now)
        done(its_ticket, outcome)

    def _adjust(self, now: float) -> None:
        new = next_limit(self._limit, self._window, least=self._least, most=self._most)
        if new.now != self._limit.now:
            _log.info("%d work items may run at once now, %d before", new.now, self._limit.now)
        self._limit, self._window, self._since = new, Window(), now
        self._owner.slots = new.now


def adapted(runner: Engine[Any], owner: ExecutionEngine, config: ExecutionConfig, clock: Clock) -> Engine[Any]:
    """Return *runner*, wrapped so that it sets the slots of *owner*, if *config* asks for that."""
    if not config.adaptive_concurrency:
        return runner
    return AdaptiveEngine(runner, owner, config.min_in_flight, config.adaptive_interval_ms / 1000, clock)
