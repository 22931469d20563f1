"""
What a queue allows.

Owns the queues' settings, their pause and their rate: a bucket that refills with time
and holds at most a second's worth of letters. Knows no letter and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redrive.stores.contract import QueueSpec, QueueState

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLOSE = 1e-9  # ten refills of a tenth make one letter, whatever floats say


@dataclass(slots=True)
class Door:
    """One queue: what was declared, whether it is shut, and how many letters it lets begin."""

    spec: QueueSpec
    paused: bool = False
    paused_by: str = ""
    reason: str = ""
    allowance: float = 0.0
    counted_ms: int | None = None  # when the allowance was last counted; None: never, so it is full

    def room(self, flying: int, now_ms: int) -> float:
        """Return how many letters may begin now, *flying* of them being under way."""
        if self.paused:
            return 0
        self._refill(now_ms)
        by_rate = float("inf") if self.spec.rate is None else int(self.allowance + _CLOSE)
        by_flight = float("inf") if self.spec.max_in_flight is None else self.spec.max_in_flight - flying
        return max(0, min(by_rate, by_flight))

    def begin(self, letters: int) -> None:
        """Take *letters* from the allowance."""
        self.allowance -= letters

    def declare(self, spec: QueueSpec) -> None:
        """Take other settings; an allowance under another rate starts afresh."""
        if spec.rate != self.spec.rate:
            self.counted_ms = None
        self.spec = spec

    def shut(self, *, paused: bool, by: str, reason: str) -> None:
        """Pause or resume it; who paused it and why is known while it lasts."""
        self.paused = paused
        self.paused_by, self.reason = (by, reason) if paused else ("", "")

    def state(self) -> QueueState:
        """Return what others may know of it."""
        return QueueState(spec=self.spec, paused=self.paused, paused_by=self.paused_by, reason=self.reason)

    def _refill(self, now_ms: int) -> None:
        rate = self.spec.rate
        if rate is None:
            return
        burst = max(1.0, rate)
        earned = burst if self.counted_ms is None else (now_ms - self.counted_ms) / 1_000 * rate
        self.allowance = min(burst, max(0.0, self.allowance) + earned)
        self.counted_ms = now_ms


@dataclass(slots=True)
class Doors:
    """Every queue that was declared or has had letters."""

    by_name: dict[str, Door] = field(default_factory=dict)

    def of(self, queue: str) -> Door:
        """Return the door of *queue*; one that nobody declared has no limits."""
        return self.by_name.get(queue) or Door(QueueSpec(name=queue))

    def made(self, queue: str) -> Door:
        """Return the door of *queue*, which is known from now on."""
        return self.by_name.setdefault(queue, Door(QueueSpec(name=queue)))

    def states(self) -> list[QueueState]:
        """Return all of them, by name."""
        return [self.by_name[name].state() for name in sorted(self.by_name)]

    def declare(self, specs: Sequence[QueueSpec]) -> list[QueueSpec]:
        """Take other settings; return those whose order per key changed."""
        changed = [spec for spec in specs if spec.ordered != self.of(spec.name).spec.ordered]
        for spec in specs:
            self.made(spec.name).declare(spec)
        return changed
