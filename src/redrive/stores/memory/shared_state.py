"""
What a queue allows.

Owns the queues' settings, their pause and what their rate lets begin. Knows no letter, no clock and no rule:
`core.rate` says how a rate's token bucket fills.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redrive.core import rate as rates
from redrive.stores.contract import QueueSpec, QueueState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.rate import Bucket


@dataclass(slots=True)
class KnownQueue:
    """One queue: what was declared, whether it is shut, and how many letters it lets begin."""

    spec: QueueSpec
    paused: bool = False
    paused_by: str = ""
    reason: str = ""
    bucket: Bucket | None = None  # of its rate

    def room(self, flying: int) -> float:
        """Return how many letters may begin now, *flying* of them being under way."""
        if self.paused:
            return 0
        by_rate = float("inf") if self.bucket is None else rates.room(self.bucket)
        by_flight = float("inf") if self.spec.max_in_flight is None else self.spec.max_in_flight - flying
        return max(0, min(by_rate, by_flight))

    def begin(self, letters: int) -> None:
        """Note that *letters* began."""
        if self.bucket is not None:
            self.bucket = rates.taken(self.bucket, letters)

    def refill(self, now: float) -> None:
        """Let the time until *now*, in seconds, count for the rate."""
        if self.bucket is not None and self.spec.rate is not None:
            self.bucket = rates.refilled(self.bucket, self.spec.rate, now)

    def declare(self, spec: QueueSpec, now: float) -> None:
        """Take other settings; under another rate the bucket is full again."""
        if spec.rate != self.spec.rate:
            self.bucket = None if spec.rate is None else rates.full(spec.rate, now)
        self.spec = spec

    def shut(self, *, paused: bool, by: str, reason: str) -> None:
        """Pause or resume it; who paused it and why is known while it lasts."""
        self.paused = paused
        self.paused_by, self.reason = (by, reason) if paused else ("", "")

    def state(self) -> QueueState:
        """Return what others may know of it."""
        return QueueState(spec=self.spec, paused=self.paused, paused_by=self.paused_by, reason=self.reason)


@dataclass(slots=True)
class KnownQueues:
    """Every queue that was declared or has had letters."""

    by_name: dict[str, KnownQueue] = field(default_factory=dict)

    def of(self, queue: str) -> KnownQueue:
        """Return *queue*; a queue that was not declared has no limits."""
        return self.by_name.get(queue) or KnownQueue(QueueSpec(name=queue))

    def made(self, queue: str) -> KnownQueue:
        """Return *queue*, which is known from now on."""
        return self.by_name.setdefault(queue, KnownQueue(QueueSpec(name=queue)))

    def states(self) -> list[QueueState]:
        """Return all of them, by name."""
        return [self.by_name[name].state() for name in sorted(self.by_name)]

    def declare(self, specs: Sequence[QueueSpec], now: float) -> list[QueueSpec]:
        """Take other settings; return those whose order per key changed."""
        changed = [spec for spec in specs if spec.ordered != self.of(spec.name).spec.ordered]
        for spec in specs:
            self.made(spec.name).declare(spec, now)
        return changed
