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
    from redrive.stores.postgres.server.transaction import Turn


async def broadcast(turn: Turn, limit: int) -> list[Spread] | None:
    """Give due events to their subscribers; None if nobody subscribes to anything."""
    rows = await turn.rows("broadcast", limit, turn.now.wall)
    spread = [
        Spread(queue=turn.text(row["queue"]), kind=turn.text(row["kind"]), events=row["events"], letters=row["letters"])
        for row in rows
        if row["events"] or row["letters"]
    ]
    return spread if rows else None


async def subscriptions(turn: Turn) -> list[Subscription]:
    """Return every subscription, by event and handler."""
    return [Subscription(event=row[0], handler=row[1], queue=row[2]) for row in await turn.rows("subscriptions")]


async def subscribe(turn: Turn, subscription: Subscription, by: str) -> bool:
    """Keep a subscription; False if it is kept already."""
    event, handler, queue = subscription.event, subscription.handler, subscription.queue
    if event == handler or any(name(each) != each for each in (event, handler, queue)):
        raise SourceError(
            f"cannot subscribe {handler[:80]!r} to {event[:80]!r}: the two must differ, and be plain and short; "
            "give the handler a kind of its own"
        )
    fresh = await turn.value("subscribe", event, handler, queue) is not None
    if fresh:
        await turn.audit(by, "subscribe", f"{handler} to {event}", 1, "")
    return fresh


async def unsubscribe(turn: Turn, event: str, handler: str, by: str) -> bool:
    """Remove a subscription; False if there is none."""
    gone = await turn.value("unsubscribe", name(event), name(handler)) is not None
    if gone:
        await turn.audit(by, "unsubscribe", f"{handler} from {event}", 1, "")
    return gone
