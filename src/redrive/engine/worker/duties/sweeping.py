"""
What a sweep does.

Owns its steps: take back what dead workers held, fail letters that wait for dead ones, remove what is past its
retention, announce kinds that no worker handles. Each is independent. Knows no schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.facts import Orphaned, Purged
from redrive.core.letter import Status
from redrive.engine.stranded import fail_stranded
from redrive.stores.contract import orphans

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.core.facts import Fact
    from redrive.engine.worker.duties.repeating import Duty
    from redrive.engine.worker.processor import Processor
    from redrive.stores.contract import Retention, Store

_FULL = 200  # lost letters that are taken back at once; where there are as many, there may be more


class Sweeper:
    """The sweeps of one worker."""

    def __init__(
        self,
        worker: str,
        store: Store,
        processor: Processor,
        announce: Callable[[Fact], None],
        *,
        lease: float,
        retention: Retention,
        meet_kinds: Callable[[], Awaitable[bool]],
    ) -> None:
        self._worker, self._store, self._processor, self._announce = worker, store, processor, announce
        self._lease, self._retention, self._meet_kinds = lease, retention, meet_kinds
        self._orphans: set[tuple[str, str]] = set()  # already announced

    @property
    def steps(self) -> tuple[Duty, ...]:
        """What a sweep does; each step is independent, so a failing one stops no other."""
        return self.rescue, self.fail_stranded, self.retain, self.announce_orphans

    async def rescue(self) -> None:
        """Take back what dead workers held."""
        while await self._processor.rescue(_FULL) == _FULL:
            continue

    async def fail_stranded(self) -> None:
        """Let go, or fail, letters that wait for dead ones and said so."""
        await fail_stranded(self._store, self._announce, worker=self._worker, lease=self._lease)

    async def retain(self) -> None:
        """Remove letters that are past their retention."""
        removed = await self._store.retain(self._retention)
        if removed:
            self._announce(Purged(count=removed, by="retention"))

    async def announce_orphans(self) -> None:
        """Announce, once each, the kinds that wait in a queue and that no live worker handles."""
        await self._meet_kinds()
        found = orphans(await self._store.tallies(Status.PENDING), await self._store.workers())
        for (queue, kind), count in found.items():
            if (queue, kind) not in self._orphans:
                self._announce(Orphaned(queue=queue, kind=kind, count=count))
        self._orphans = set(found)
