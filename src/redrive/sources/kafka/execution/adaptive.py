"""
How many work items should run at once.

Owns the opt-in rule: a little more while all places are taken and tries go well, a quarter less as
soon as many of them fail or take much longer than they could, always between two bounds. The
rule itself (`next_limit`) is pure. Knows no order, no offsets, no Kafka client.
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
_LESS = 0.75  # what is left of the limit when there is too much
_STEPS = 32  # so many good windows lead from 0 to the upper bound
_BAD_SHARE = 0.1  # of the tries
_SLOW = 2.5  # times the usual time; twice is what one waits for whoever is before one in a pool
_QUICK = 0.005  # seconds; what takes no longer is never too slow
_DRIFT = 1.02  # a window: what is usual follows a dependency that has become slower for good
_ENOUGH = 10  # tries that a window must have seen to say anything


@dataclass(frozen=True, slots=True)
class Limit:
    """How many may run at once, and how long a try usually takes in seconds; 0.0: not known yet."""

    now: int
    usual: float = 0.0


@dataclass(slots=True)
class Window:
    """What the tries that ended in one stretch of time came to."""

    ended: int = 0
    failed: int = 0  # other than by their own word
    seconds: float = 0.0  # all of them together
    full: bool = False  # whether all places were taken at some time


def next_limit(limit: Limit, seen: Window, *, least: int, most: int) -> Limit:
    """Return the limit after *seen*: never below *least*, never above *most*."""
    if not seen.ended:
        return limit
    mean = seen.seconds / seen.ended
    usual = min(mean, limit.usual * _DRIFT) if limit.usual else mean
    if seen.failed > _BAD_SHARE * seen.ended or mean > max(_QUICK, _SLOW * usual):
        return Limit(max(least, int(limit.now * _LESS)), usual)
    step = max(1, most // _STEPS) if seen.full else 0
    return Limit(max(least, min(most, limit.now + step)), usual)


class AdaptiveEngine:
    """
    Times the tries that *inner* runs, and sets the slots of *owner* by them.

    It begins at the upper bound, which is what *owner* has without it: whoever runs well notices nothing.
    """

    def __init__(self, inner: Engine[Any], owner: ExecutionEngine, least: int, interval: float, clock: Clock) -> None:
        self._inner, self._owner, self._interval, self._clock = inner, owner, interval, clock
        self._most = owner.slots
        self._least = min(least or max(1, self._most // 4), self._most)
        self._limit = Limit(self._most)
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
            _log.info("%d work items may run at once from now on, before it was %d", new.now, self._limit.now)
        self._limit, self._window, self._since = new, Window(), now
        self._owner.slots = new.now


def adapt(engine: ExecutionEngine, config: ExecutionConfig, clock: Clock) -> ExecutionEngine:
    """Return *engine*, which from now on sets its slots by how its tries go, if *config* asks for that."""
    if config.adaptive_concurrency:
        interval = config.adaptive_interval_ms / 1000
        engine.runner = AdaptiveEngine(engine.runner, engine, config.min_in_flight, interval, clock)
    return engine
