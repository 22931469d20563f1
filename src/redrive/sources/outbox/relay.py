"""
From the outbox to somebody else's broker.

Owns the port that every relay fills. A relay is a handler that publishes: what it raises is
judged, retried and dead-lettered like any handler's failure.
"""

from __future__ import annotations

from typing import Protocol

from redrive.core.letter import Letter  # noqa: TC001 - handlers' annotations are read at run time


class Relay(Protocol):
    """Publishes letters to a broker."""

    async def publish(self, letter: Letter) -> None:
        """
        Publish *letter*, and return once the broker has confirmed that it is kept there.

        Raise what went wrong otherwise. It may be called again with the same letter: whoever
        receives it tells duplicates by the letter's idempotency key, or its id.
        """
