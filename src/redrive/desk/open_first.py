"""
An application's store, for an operator who may be the first to come.

Owns that it is opened before it is asked. Knows no verb: whatever the store can be asked, this can.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from redrive.stores.contract import Store


class App(Protocol):
    """What has a store, and opens it; `redrive.Redrive` does."""

    store: Store

    async def open(self) -> None:
        """Open the store unless that was done."""


class OpenFirst:
    """An application's store for an operator, who may be the first to come: opens it, then asks it."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._app.store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*given: Any, **named: Any) -> Any:
            await self._app.open()
            return await getattr(self._app.store, name)(*given, **named)  # a fork has a store of its own by now

        return call
