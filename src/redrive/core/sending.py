"""
The way back to where a letter came from.

Owns the port through which letters leave for another system: a dead letter of a Kafka topic
that goes home, an event of the outbox on its way to a broker. Sources implement it, the wiring
hands it to a worker. Knows no broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from redrive.core.letter import Letter


class Sender(Protocol):
    """Takes letters to another system."""

    async def publish(self, letter: Letter) -> None:
        """
        Send *letter*; return only once the other side has confirmed that it has it for good.

        What is raised is a failed try, and decided upon like any other; Reject says that this
        letter can never be sent.
        """


def scheme_of(origin: str | None) -> str:
    """Return the first word of an origin: `kafka` for `kafka:orders/3@17`; nothing if there is none."""
    return (origin or "").partition(":")[0]
