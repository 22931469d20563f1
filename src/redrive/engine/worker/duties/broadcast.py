"""
Events to their subscribers.

Owns when a worker asks the store to broadcast, and the facts about it. The store knows which events are due and
which kinds subscribe; a store that cannot broadcast is never asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from redrive.core.facts import Delivered, Enqueued
from redrive.errors import StoreError
from redrive.stores.contract import as_broadcaster

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.facts import Fact
    from redrive.stores.contract import Spread, Store


class Spreader:
    """Broadcasts soon after letters were put, and every *poll* seconds; every *idle* while nothing subscribes."""

    def __init__(self, store: Store, announce: Callable[[Fact], None], *, poll: float, idle: float) -> None:
        self._store = as_broadcaster(store)
        self._announce, self._poll, self._idle = announce, poll, idle
        self._news = asyncio.Event()

    def tell(self) -> None:
        """Note that there may be events."""
        self._news.set()

    async def run(self) -> None:
        """Broadcast until cancelled."""
        while self._store is not None:
            self._news.clear()
            spread: list[Spread] | None = []
            with contextlib.suppress(StoreError):  # it may be back the next time
                spread = await self.once()
            if spread is None:
                await asyncio.sleep(self._idle)
            elif not spread:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), self._poll)

    async def once(self) -> list[Spread] | None:
        """Broadcast what is due now; None if nothing subscribes."""
        spread = None if self._store is None else await self._store.broadcast()
        for each in spread or ():
            if each.events:
                self._announce(Delivered(queue=each.queue, kind=each.kind, count=each.events))
            if each.letters:
                self._announce(Enqueued(queue=each.queue, kind=each.kind, count=each.letters))
        return spread
