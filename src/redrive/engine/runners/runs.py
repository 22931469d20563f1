"""
Which letters an engine holds.

Owns the promise of one outcome per started letter: whoever settles first wins, whatever
comes later is ignored. Knows nothing of how a letter runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from redrive.core.letter import Letter
from redrive.engine.clock import Timer
from redrive.engine.handler import Handler
from redrive.engine.runners.contract import Done

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.core.decide import Outcome


class Run(msgspec.Struct, eq=False):
    """One letter under way: what to run, and whom to tell."""

    handler: Handler
    letter: Letter
    ticket: object
    done: Done
    timer: Timer | None = None


R = TypeVar("R", bound=Run)


class Ledger(Generic[R]):
    """The runs that have no outcome yet. Changed on the event loop's thread only."""

    def __init__(self) -> None:
        self._open: dict[R, None] = {}  # in the order of their start
        self._drained = asyncio.Event()

    def __len__(self) -> int:
        """Return how many letters have no outcome yet."""
        return len(self._open)

    def __contains__(self, run: R) -> bool:
        """Whether *run* has no outcome yet."""
        return run in self._open

    def __iter__(self) -> Iterator[R]:
        """Go through what was open when this began, oldest first; settling on the way is fine."""
        return iter(tuple(self._open))

    def open(self, run: R) -> None:
        """Note that *run* was started."""
        self._open[run] = None

    def settle(self, run: R, outcome: Outcome) -> None:
        """Tell the caller, unless it was told before."""
        if run in self._open:
            self.forget(run)
            run.done(run.ticket, outcome)

    def forget(self, run: R) -> None:
        """Note that *run* has its outcome, or that it is none of ours; whoever says so tells the caller."""
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
            pass  # what is left will be stopped by whoever asked
