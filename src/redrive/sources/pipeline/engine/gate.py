"""
Whether a node moves.

Owns the gate in front of a node's module: open, or shut with a reason. It shuts when the module refuses every call
(no permission, no such method, no such host), when ten documents in a row went to quarantine, when the node's breaker
opens, and when an operator pauses the node. A shut gate lets one document through every now and then; its success
opens the gate for all. Documents at a shut gate are in no lane: they stay in their topic. Knows no Kafka, no gRPC.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from redrive.sources.pipeline.modules.failures import Remedy, StepFailed, Trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.engine.clock import Clock
    from redrive.sources.pipeline.graph.model import NodeBreaker

    Leaving = Callable[[], bool]

_log = logging.getLogger("redrive.pipeline")
QUARANTINED_IN_A_ROW = 10
TRY_AGAIN = 30.0  # seconds until a held node tries one document
_LOOK = 0.2  # seconds between two looks at the clock and at partitions that leave
_LEFT = Trouble(Remedy.RETRY, "LEFT", "its partition is revoked while the node stands still")


class PartitionLeft(StepFailed):
    """A document waits at a shut gate while its partition goes to another engine, which processes it again."""

    def __init__(self) -> None:
        super().__init__(_LEFT)


class NodeGate:
    """The gate of the node *name*; use it on one event loop."""

    def __init__(self, name: str, clock: Clock, breaker: NodeBreaker | None = None) -> None:
        self.name, self._clock, self._breaker = name, clock, breaker
        self.reason = ""  # why it is shut
        self.paused = ""  # why an operator paused the node
        self._try_at = 0.0  # when the next document may try
        self._rest = TRY_AGAIN
        self._quarantined = 0  # in a row, without a success
        self._failed = 0  # calls in a row
        self._waiting: deque[tuple[asyncio.Future[None], Leaving]] = deque()
        self._watch: asyncio.Task[None] | None = None

    @property
    def is_shut(self) -> bool:
        """Whether documents wait."""
        return bool(self.reason or self.paused)

    @property
    def waiting(self) -> int:
        """Documents that wait at the gate."""
        return len(self._waiting)

    async def enter(self, is_leaving: Leaving) -> None:
        """Return when a document may be tried; raise PartitionLeft if *is_leaving* says that its partition leaves."""
        if not self.is_shut:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, is_leaving))
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watching())
        await turn

    # ------------------------------------------------------------------ what documents met

    def succeeded(self) -> None:
        """Note that a module answered: the gate opens."""
        self._quarantined = self._failed = 0
        if self.reason:
            _log.warning("node %s goes on", self.name)
            self.reason = ""
            self.tick()

    def skipped(self) -> None:
        """Note that a document did without the module: a shut gate lets the next one try."""
        self._try_at = 0.0

    def stops(self, trouble: Trouble) -> bool:
        """Note *trouble*; return whether its document has to wait here, because the node itself is held."""
        was_shut = self.is_shut
        match trouble.remedy:
            case Remedy.HOLD:
                self._shut(f"{trouble.word}: {trouble.text}", TRY_AGAIN)
                return True
            case Remedy.QUARANTINE:
                self._quarantined += 1
                if self._quarantined >= QUARANTINED_IN_A_ROW:
                    self._shut(f"{self._quarantined} documents in a row failed, the last: {trouble.word}", TRY_AGAIN)
            case Remedy.RETRY:
                self._failed += 1
                if self._breaker is not None and self._failed >= self._breaker.failures:
                    self._shut(f"its breaker is open: {trouble.word}", self._breaker.open_for)
        return was_shut and self.is_shut

    # ------------------------------------------------------------------ what operators do

    def renew(self, breaker: NodeBreaker | None) -> None:
        """Go on as the gate of a node that changed: a pause stays, a held node tries at once."""
        self._breaker, self._quarantined, self._failed = breaker, 0, 0
        self.reason = ""
        self.tick()

    def pause(self, why: str) -> None:
        """Shut the gate until `resume`."""
        self.paused = why

    def resume(self) -> None:
        """End a pause, and let a held node try at once."""
        self.paused, self._try_at = "", 0.0
        self.tick()

    # ------------------------------------------------------------------ time

    def tick(self) -> None:
        """Let those go that may: all if the gate is open, one if it is time, and those whose partitions leave."""
        for turn, is_leaving in list(self._waiting):
            if is_leaving() and not turn.done():
                turn.set_exception(PartitionLeft())
        self._waiting = deque(each for each in self._waiting if not each[0].done())
        if not self.is_shut:
            while self._waiting:
                self._waiting.popleft()[0].set_result(None)
        elif not self.paused and self._waiting and self._clock.monotonic() >= self._try_at:
            self._try_at = self._clock.monotonic() + self._rest
            self._waiting.popleft()[0].set_result(None)

    def _shut(self, why: str, rest: float) -> None:
        if not self.reason:
            _log.error("node %s is held: %s; it tries again every %g s", self.name, why.partition(":")[0], rest)
        self.reason, self._rest = why, rest
        self._try_at = self._clock.monotonic() + rest

    async def _watching(self) -> None:
        while self._waiting:
            self.tick()
            await self._clock.sleep(_LOOK)

    async def close(self) -> None:
        """Let no document through any more."""
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
