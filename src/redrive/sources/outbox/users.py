"""
The outbox of one store, for whichever connections users bring.

Owns putting a connection, its driver, the store's schema and the waker together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from redrive.sources.outbox.drivers import driver_of
from redrive.sources.outbox.face import AsyncOutbox, Destination, Outbox, async_once, once
from redrive.sources.outbox.waking import Waker

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from redrive.core.letter import Draft, Letter
    from redrive.sources.outbox.face import AwaitedDriver, BlockingDriver, Enqueuing
    from redrive.stores.postgres import PostgresStore


class Outboxes:
    """Makes an outbox of a user's connection."""

    def __init__(self, store: PostgresStore, draft: Callable[..., Draft], enqueuing: Enqueuing | None = None) -> None:
        self.store = store
        self._waker = Waker(store.dsn, pooled=store.pooled)
        self._quiet = Destination(store.schema, draft, None, enqueuing)
        self._loud = Destination(store.schema, draft, self._waker.tell, enqueuing)

    def bind(self, connection: Any, *, wake: bool) -> Outbox | AsyncOutbox:
        """Return the outbox of *connection*; raise SourceError for one of an unknown driver."""
        driver, place = driver_of(connection), self._loud if wake else self._quiet
        if driver.blocks:
            return Outbox(cast("BlockingDriver", driver), place)
        return AsyncOutbox(cast("AwaitedDriver", driver), place)

    def once(
        self, letter: Letter, connection: Any, handler: str | None
    ) -> AbstractContextManager[bool] | AbstractAsyncContextManager[bool]:
        """Return the block in which the effect of *letter* happens once."""
        driver, sql = driver_of(connection), self._quiet.handle_once
        if driver.blocks:
            return once(cast("BlockingDriver", driver), sql, letter, handler)
        return async_once(cast("AwaitedDriver", driver), sql, letter, handler)

    def close(self) -> None:
        """Wake no worker any more."""
        self._waker.close()
