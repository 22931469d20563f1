"""
The way out of redrive, to another system.

Owns the port through which letters leave: an event of the outbox on its way to a broker, a dead letter of a Kafka
topic on its way back. Sources implement it, the wiring hands it to a worker. Knows no broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from redrive.core.letter import Letter


class Publisher(Protocol):
    """Publishes letters to another system."""

    async def publish(self, letter: Letter) -> None:
        """
        Publish *letter*, and return only once the other side has confirmed that it keeps it.

        What is raised is a failed attempt, and decided upon like any other; Reject says that this letter can never be
        sent. The same letter may come again: the receiver recognises it by its idempotency key, or its id.
        """
