"""
What one transaction of the memory store reads and writes: all that the store holds.

Owns the counter that letters' tokens are drawn from, the clocks and the audit entries. The store hands its contents
to one caller at a time. Knows no operation: put, claim, act and the rest are functions that take a Contents.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redrive.core.breaker import Breaker
from redrive.core.plan import AuditEntry
from redrive.stores.memory.rows import LetterTable
from redrive.stores.memory.shared_state import KnownQueues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redrive.core.breaker import BreakerRules
    from redrive.core.budget import Budget
    from redrive.core.plan import Plan
    from redrive.stores.clock import StoreClock
    from redrive.stores.contract import WorkerBeat


@dataclass(slots=True)
class Contents:
    """Letters, queues, plans, and what workers share."""

    clock: StoreClock
    table: LetterTable = field(default_factory=LetterTable)
    queues: KnownQueues = field(default_factory=KnownQueues)
    plans: dict[str, Plan] = field(default_factory=dict)
    entries: list[AuditEntry] = field(default_factory=list)
    beats: dict[str, tuple[WorkerBeat, int]] = field(default_factory=dict)  # and the end of its lease
    breakers: dict[str, tuple[Breaker, BreakerRules]] = field(default_factory=dict)
    budgets: dict[str, Budget] = field(default_factory=dict)
    handled: dict[tuple[str, str], int] = field(default_factory=dict)  # by handler and key: when
    counters: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    token: int = 0  # the newest number given to a transaction
    dealt: int = 0  # where the next deal of the priorities' shares begins
    retained: int = 0  # the last row that retention looked at

    @property
    def now_us(self) -> int:
        """The wall clock."""
        return self.clock.wall_us()

    @property
    def now_ms(self) -> int:
        """The clock that does not jump, for leases and rates."""
        return self.clock.lease_ms()

    def next_token(self) -> int:
        """Return a number greater than every one given before."""
        self.token += 1
        return self.token

    def lease(self, seconds: float) -> int:
        """Return the end of a lease that begins now."""
        return self.now_ms + round(seconds * 1_000)

    def breaker(self, name: str) -> Breaker:
        """Return the breaker *name* as it was last left; a new one is closed."""
        return self.breakers[name][0] if name in self.breakers else Breaker(name, since=self.now_us / 1e6)

    def add_up(self, name: str, amounts: Mapping[str, int]) -> dict[str, int]:
        """Add to the counters *name* and return all of them."""
        self.counters[name].update(amounts)
        return dict(self.counters[name])

    def note_handled(self, handler: str, key: str) -> bool:
        """Note that *handler* handled *key*; False if that was noted before."""
        noted = (handler, key) in self.handled
        self.handled.setdefault((handler, key), self.now_us)
        return not noted

    def audit(self, by: str, verb: str, target: str, count: int, reason: str) -> None:
        """Write who did what."""
        seq = len(self.entries) + 1
        entry = AuditEntry(seq=seq, at_us=self.now_us, by=by, verb=verb, target=target, count=count, reason=reason)
        self.entries.append(entry)
