"""
Which handlers get a letter of their own for an event.

Owns the verbs on subscriptions. A subscription is data: it holds for every event that is broadcast from now on, and
until an operator removes it. Each change is written with its audit entry. Knows no terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from redrive.errors import NotSupported
from redrive.stores.contract import Subscription, as_broadcaster

if TYPE_CHECKING:
    from redrive.stores.contract import Broadcasts, Store


class Subscriptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every subscription, by event and handler."""

    subscriptions: list[Subscription]


async def subscriptions(store: Store) -> Subscriptions:
    """Return every subscription."""
    return Subscriptions(subscriptions=await _broadcasting(store).subscriptions())


async def subscribe(store: Store, subscription: Subscription, *, by: str) -> bool:
    """Keep a subscription; False if it was kept already."""
    return await _broadcasting(store).subscribe(subscription, by=by)


async def unsubscribe(store: Store, event: str, handler: str, *, by: str) -> bool:
    """Remove a subscription; False if there was none. Letters that were made of events stay."""
    return await _broadcasting(store).unsubscribe(event, handler, by=by)


def _broadcasting(store: Store) -> Broadcasts:
    found = as_broadcaster(store)
    if found is None:
        raise NotSupported(
            f"cannot subscribe to events in {type(store).__name__}: only PostgreSQL broadcasts them; "
            "use postgresql://…, or enqueue a letter for each handler"
        )
    return found
