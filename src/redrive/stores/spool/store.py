"""
A store behind a spool.

Owns which letters are spooled: those that are put while the store is away, and those of a queue of which others still
wait, because they must not overtake them. Only `put` is spooled; every other call goes to the store and raises as it
does without a spool. Knows no file format: that is `spool_file`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.errors import StoreError, StoreUnavailable
from redrive.stores.spool.forward_lock import ForwardLock
from redrive.stores.spool.forwarder import AWAY, SpoolForwarder
from redrive.stores.spool.spool_file import SpoolFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.letter import Draft
    from redrive.stores.contract import Features, QueueSpec, Receipt, Store
    from redrive.stores.spooling import Spooled

_QUICK, _QUICK_EACH = 1.0, 0.001  # seconds that a put, and each of its letters, may take before it is spooled


class SpoolStore:
    """A `Store` that goes on accepting letters while *store* is away."""

    def __init__(self, store: Store, path: str, *, limit: int) -> None:
        self.behind = store
        self.file = SpoolFile(path, limit=limit)
        self._lock = ForwardLock(path)
        self._forwarder = SpoolForwarder(self.file, self._lock, self._put_behind)
        self._specs: dict[str, QueueSpec] = {}
        self._is_open = False  # the store behind
        self._away = False  # by the last call that put letters
        self._opening = asyncio.Lock()
        self._woken, self._stepped = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def features(self) -> Features:
        """What the store behind can do, and that it may be away."""
        return msgspec.structs.replace(self.behind.features, spools=True)

    @property
    def is_away(self) -> bool:
        """Whether the store behind could not be reached when it was last asked; the forwarder keeps asking."""
        return self._away

    async def open(self) -> None:
        """Open the spool, and the store if it can be reached; from now on what waits is forwarded."""
        if self._task is not None:
            return
        await self.file.open()
        try:
            await self._open_behind()
        except StoreUnavailable:
            self._away = True
        self._task = asyncio.create_task(self._run(), name="redrive-spool")

    async def _open_behind(self) -> None:
        async with self._opening:
            if not self._is_open:
                await self.behind.open()
                if self._specs:
                    await self.behind.declare(tuple(self._specs.values()))
                self._is_open = True

    async def close(self) -> None:
        """Stop forwarding and close both; what waits stays in the file."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._lock.unlock()
        await self.file.close()
        self._is_open = False
        await self.behind.close()

    # ------------------------------------------------------------------ letters in

    async def put(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Keep *drafts*, all or none: in the store, or in the spool while the store is away (`Receipt.spooled`)."""
        if not self._away and not await self._has_others(drafts):
            try:
                # A sender does not wait as long as the store would. What was put all the same has the same id, so
                # that the store knows it when it is forwarded.
                async with asyncio.timeout(_QUICK + _QUICK_EACH * len(drafts)):
                    return await self._put_behind(drafts)
            except (StoreUnavailable, TimeoutError):
                self._away = True
        receipts = await self.file.keep(drafts)
        self._woken.set()
        return receipts

    async def _has_others(self, drafts: Sequence[Draft]) -> bool:
        """Say whether letters of the same queues wait in the spool: these come after them."""
        waiting = await self.file.queues()
        return bool(waiting) and not {draft.queue for draft in drafts}.isdisjoint(waiting)

    async def _put_behind(self, drafts: Sequence[Draft]) -> list[Receipt]:
        await self._open_behind()
        receipts = await self.behind.put(drafts)
        self._away = False
        return receipts

    async def spooled(self) -> Spooled:
        """Return what the spool holds."""
        return await self.file.spooled()

    # ------------------------------------------------------------------ forwarding

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            rest = await self._step()
            self._stepped.set()
            self._stepped = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):  # not wait_for: on Python 3.11 it may lose a cancellation
                    await self._woken.wait()

    async def stepped(self) -> None:
        """Return after the next step of the forwarder, which is asked to make one now."""
        self._woken.set()
        await self._stepped.wait()

    async def _step(self) -> float:
        try:
            rest = await self._forwarder.step()
            if self._away and rest != AWAY:
                await self._look()
        except StoreError:  # the store, or the spool's own file: both are tried again
            return AWAY
        return rest

    async def _look(self) -> None:
        """See whether the store is back although nothing waits."""
        await self._open_behind()
        await self.behind.queues()
        self._away = False

    # ------------------------------------------------------------------ everything else

    async def declare(self, specs: Sequence[QueueSpec]) -> None:
        """Make the queues' settings known; while the store is away they wait until it is back."""
        self._specs |= {spec.name: spec for spec in specs}
        if self._is_open:
            await self.behind.declare(specs)

    def __getattr__(self, name: str) -> Any:
        """Give what the store behind gives; a call opens the store first if it was away so far."""
        found = getattr(self.behind, name)
        if self._is_open or not inspect.iscoroutinefunction(found):
            return found

        async def opened(*arguments: Any, **options: Any) -> Any:
            await self._open_behind()
            return await found(*arguments, **options)

        return opened
