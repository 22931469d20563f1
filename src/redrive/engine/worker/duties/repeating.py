"""
When a duty comes again.

Owns the loops around a worker's duties: every so often, or again after a fault of our own ended one. A store that is
away, and a fault, cost one turn and never the worker. Knows no duty.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from redrive.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from redrive.engine.clock import Clock
    from redrive.engine.worker.faults import Faults

    Duty = Callable[[], Coroutine[None, None, None]]


class Repeating:
    """Repeats duties; *rest* is how many seconds pass before one that a fault ended begins again."""

    def __init__(self, clock: Clock, faults: Faults, rest: float) -> None:
        self._clock, self._faults, self._rest = clock, faults, rest

    async def every(self, span: float, *steps: Duty) -> None:
        """Take *steps* every *span* seconds; a store that is away now may be back the next time."""
        while True:
            await self._clock.sleep(span)
            for step in steps:
                with contextlib.suppress(StoreError):
                    await step()

    async def again(self, duty: Duty) -> None:
        """Do *duty*, and begin again when a fault of our own ends it."""
        while await self.ended_by_fault(duty):
            await self._clock.sleep(self._rest)

    def surviving(self, step: Duty) -> Duty:
        """Return *step* as one that a fault of our own ends without harm to others."""

        async def take() -> None:
            await self.ended_by_fault(step)

        return take

    async def ended_by_fault(self, step: Duty) -> bool:
        """Take *step*; announce a fault of our own that ends it, and return True: it must not end the worker."""
        try:
            await step()
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the next time may be better
            self._faults.tell(step.__name__.strip("_"), error)
            return True
        return False
