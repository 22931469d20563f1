"""
Handlers of many kinds.

Owns handlers whose kind ends in `.*`, such as `kafka.*`: they handle every kind that begins so. Stores claim exact
kinds, so the worker asks the store which of these kinds have pending letters, and claims them from then on. Knows no
letter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redrive.core.letter import Status

if TYPE_CHECKING:
    from redrive.engine.handler import Handler
    from redrive.engine.worker.slots.capacity import Capacity
    from redrive.stores.contract import Store

_ANY = ".*"


class OpenKinds:
    """The kinds that handlers such as `kafka.*` have met; adds each to *handlers* and *capacity*."""

    def __init__(self, store: Store, handlers: dict[str, Handler], capacity: Capacity) -> None:
        self._store, self._handlers, self._capacity = store, handlers, capacity
        self._patterns = [handler for kind, handler in handlers.items() if kind.endswith(_ANY)]

    async def look(self) -> bool:
        """Add the kinds of pending letters that a pattern covers; return whether one is new."""
        if not self._patterns:
            return False
        pending = {(tally.queue, tally.kind) for tally in await self._store.tallies(Status.PENDING)}
        met = [(kind, self._covering(queue, kind)) for queue, kind in sorted(pending) if kind not in self._handlers]
        new = {kind: handler for kind, handler in met if handler is not None}
        for kind, handler in new.items():
            self._handlers[kind] = replace(handler, kind=kind)
            self._capacity.adopt(kind, handler.kind)
        return bool(new)

    def _covering(self, queue: str, kind: str) -> Handler | None:
        """Return the handler with the longest pattern that covers *kind* in *queue*."""
        fits = [each for each in self._patterns if each.queue == queue and kind.startswith(each.kind[:-1])]
        return max(fits, key=lambda each: len(each.kind), default=None)
