"""
Which items an engine holds.

Owns the promise of one outcome per started item: the first outcome counts, later ones are ignored.
Knows nothing of how an item runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from redrive.engine.clock import Timer
from redrive.engine.handler import Handler
from redrive.engine.runners.contract import OnOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.core.decide import Outcome


class Run(msgspec.Struct, eq=False):
    """One item under way: what runs it, and which callback gets its outcome."""

    handler: Handler[Any]
    item: Any  # the T of the engine that holds it
    ticket: object
    done: OnOutcome
    timer: Timer | None = None


R = TypeVar("R", bound=Run)


class OpenRuns(Generic[R]):
    """The runs that have no outcome yet. Changed on the event loop's thread only."""

    def __init__(self) -> None:
        self._open: dict[R, None] = {}  # in the order of their start
        self._drained = asyncio.Event()

    def __len__(self) -> int:
        """Return how many runs have no outcome yet."""
        return len(self._open)

    def __contains__(self, run: R) -> bool:
        """Whether *run* has no outcome yet."""
        return run in self._open

    def __iter__(self) -> Iterator[R]:
        """Go through the runs that are open now, oldest first; settling one during the loop is fine."""
        return iter(tuple(self._open))

    def open(self, run: R) -> None:
        """Note that *run* was started."""
        self._open[run] = None

    def settle(self, run: R, outcome: Outcome) -> None:
        """Report *outcome* to the run's callback, unless it had one before."""
        if run in self._open:
            self.forget(run)
            run.done(run.ticket, outcome)

    def forget(self, run: R) -> None:
        """Note that *run* has its outcome, or is not in here; the caller calls its callback."""
        self._open.pop(run, None)
        if run.timer is not None:
            run.timer.cancel()
        if not self._open:
            self._drained.set()

    async def drain(self, grace: float) -> None:
        """Wait until every run has its outcome, at most *grace* seconds."""
        if not self._open:
            return
        self._drained.clear()
        try:
            async with asyncio.timeout(grace):
                await self._drained.wait()
        except TimeoutError:
            pass  # the caller stops what is left
