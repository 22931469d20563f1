"""
When the next exchange with the store is due.

Owns how long outcomes wait for company: few large exchanges cost less than many small ones. An exchange never waits
while slots may run out of letters, while letters may wait for one of the outcomes, or while the worker stops. Knows no
store and no handler.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from redrive.engine.worker.slots.run_times import company

if TYPE_CHECKING:
    from redrive.core.decide import Outcome
    from redrive.engine.worker.exchange import Exchanges
    from redrive.engine.worker.slots.ahead import Ahead
    from redrive.engine.worker.slots.capacity import Capacity
    from redrive.stores.contract import Claim


class Gathering:
    """The outcomes of one process that no exchange has taken yet."""

    def __init__(self, capacity: Capacity, exchanges: Exchanges) -> None:
        self._capacity, self._exchanges = capacity, exchanges
        self._hurry = asyncio.Event()
        self.under_way = False  # whether the next exchange waits

    @property
    def may_go_on(self) -> bool:
        """Whether the next exchange may wait for more outcomes."""
        return self._capacity.has_plenty and not any(map(_is_awaited, self._exchanges.outcomes))

    async def wait(self) -> None:
        """Wait for more outcomes, but only for a moment."""
        self._hurry.clear()
        self.under_way = True
        try:
            async with asyncio.timeout(company(self._exchanges.seconds)):
                await self._hurry.wait()
        except TimeoutError:
            pass  # the moment is over
        finally:
            self.under_way = False

    def ended(self, claim: Claim, ahead: Ahead) -> None:
        """Note an outcome, which slots with these letters *ahead* have brought; only while this is under way."""
        if len(ahead.ready) <= ahead.low or claim.letter.key is not None:
            self._hurry.set()

    def came(self) -> None:
        """Note that the store has new letters: slots that have none should get them at once."""
        if self._capacity.has_idle:
            self._hurry.set()

    def end(self) -> None:
        """Let the next exchange begin now."""
        self._hurry.set()


def _is_awaited(ended: tuple[Claim, Outcome]) -> bool:
    """Whether letters may wait for this outcome: those behind it in the order of its key."""
    return ended[0].letter.key is not None
