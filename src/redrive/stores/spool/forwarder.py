"""
From the spool to the store.

Owns the order of forwarding: each queue's drafts in the order of their arrival, one forwarder at a time. A draft leaves
the spool after its store has it, so a process that dies in between forwards it again, and the store knows its id.
A step returns how long to rest. Knows no file and no task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.errors import LetterNotFound, QueueFull, RedriveError, StoreError
from redrive.failpoints import hit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from redrive.core.letter import Draft
    from redrive.stores.contract import Receipt
    from redrive.stores.spool.forward_lock import ForwardLock
    from redrive.stores.spool.spool_file import Held, SpoolFile

AWAY, FULL, IDLE = 0.25, 0.5, 1.0  # seconds of rest


class SpoolForwarder:
    """Forwards what waits in *file* by *put*."""

    def __init__(
        self, file: SpoolFile, lock: ForwardLock, put: Callable[[Sequence[Draft]], Awaitable[list[Receipt]]]
    ) -> None:
        self._file, self._lock, self._put = file, lock, put

    async def step(self) -> float:
        """Forward some letters of every queue; return how many seconds to rest."""
        queues = await self._file.queues()
        if not queues or not self._lock.take():
            return IDLE
        left = await self._file.held()
        rests = []
        for queue in queues:
            held = left.get(queue) or await self._file.next(queue)
            hit("spool.claimed")
            try:
                rests.append(await self._forward(held))
            except StoreError:
                return AWAY
        return min(rests, default=0.0)

    async def _forward(self, held: Sequence[Held]) -> float:
        """Forward these in one call; one by one if the store refuses the call."""
        if not held:
            return 0.0
        try:
            receipts = await self._put([each.draft for each in held])
        except StoreError:
            raise
        except RedriveError:
            return await self._forward_each(held)
        hit("spool.forwarded")
        await self._file.leave(held, receipts)
        hit("spool.left")
        return 0.0

    async def _forward_each(self, held: Sequence[Held]) -> float:
        """Forward one after the other; stop where the queue is full, so that the others keep their places."""
        for each in held:
            try:
                receipts = await self._put([each.draft])
            except StoreError:
                raise
            except QueueFull:
                return FULL
            except RedriveError as error:
                if await self._may_come(each.draft, error):
                    return FULL
                await self._file.refuse(each, error)
                hit("spool.refused")
            else:
                hit("spool.forwarded")
                await self._file.leave([each], receipts)
        return 0.0

    async def _may_come(self, draft: Draft, error: RedriveError) -> bool:
        """Say whether what the store misses waits in the spool, too, in another queue."""
        if not isinstance(error, LetterNotFound):
            return False
        return any([await self._file.waits(other) for other in draft.after])
