"""
Events with several handlers.

Owns the subscriptions. What becomes of an event is done by the server, in one transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.errors import SourceError
from redrive.stores.contract import Spread, Subscription
from redrive.stores.postgres.texts import name

if TYPE_CHECKING:
    from redrive.stores.postgres.server.transaction import Transaction


async def broadcast(transaction: Transaction, limit: int) -> list[Spread] | None:
    """Give due events to their subscribers; None if there are no subscriptions."""
    rows = await transaction.rows("broadcast", limit, transaction.now.wall)
    spread = [
        Spread(
            queue=transaction.text(row["queue"]),
            kind=transaction.text(row["kind"]),
            events=row["events"],
            letters=row["letters"],
        )
        for row in rows
        if row["events"] or row["letters"]
    ]
    return spread if rows else None


async def subscriptions(transaction: Transaction) -> list[Subscription]:
    """Return every subscription, by event and handler."""
    return [Subscription(event=row[0], handler=row[1], queue=row[2]) for row in await transaction.rows("subscriptions")]


async def subscribe(transaction: Transaction, subscription: Subscription, by: str) -> bool:
    """Keep a subscription; False if it is kept already."""
    event, handler, queue = subscription.event, subscription.handler, subscription.queue
    if event == handler or any(name(each) != each for each in (event, handler, queue)):
        raise SourceError(
            f"cannot subscribe {handler[:80]!r} to {event[:80]!r}: the two must differ, and be plain and short; "
            "give the handler a kind of its own"
        )
    fresh = await transaction.value("subscribe", event, handler, queue) is not None
    if fresh:
        await transaction.audit(by, "subscribe", f"{handler} to {event}", 1, "")
    return fresh


async def unsubscribe(transaction: Transaction, event: str, handler: str, by: str) -> bool:
    """Remove a subscription; False if there is none."""
    gone = await transaction.value("unsubscribe", name(event), name(handler)) is not None
    if gone:
        await transaction.audit(by, "unsubscribe", f"{handler} from {event}", 1, "")
    return gone
