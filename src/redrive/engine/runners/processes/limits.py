"""
The time limits of what children run.

Owns from when the time of a child's letter counts, and which limit holds it. Knows no pool and no pipe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.engine.runners.timeouts import Limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.engine.clock import Clock
    from redrive.engine.runners.processes.child import Child, ChildRun


class ChildLimits:
    """Calls *expired* with each child whose letter is out of time."""

    def __init__(self, clock: Clock, expired: Callable[[Child], None]) -> None:
        self._clock, self._expired = clock, expired
        self.by_span: dict[float, Limit[Child]] = {}

    def count(self, child: Child, run: ChildRun | None, extra: float = 0.0) -> None:
        """Count the time of *run*, which begins in *child*, from now; None if nothing runs there."""
        span = None if run is None or run.handler.timeout is None else run.handler.timeout + extra
        limit = None if span is None else self.by_span.get(span) or self._new(span)
        if child.limit is not None and child.limit is not limit:
            child.limit.let_go(child)
        child.limit = limit
        if limit is not None:
            limit.hold(child)

    def close(self) -> None:
        """Forget everything."""
        for limit in self.by_span.values():
            limit.close()

    def _new(self, span: float) -> Limit[Child]:
        limit = self.by_span[span] = Limit(span, self._expired, self._clock.timers())
        return limit
