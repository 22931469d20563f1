"""
What every execution engine promises.

Owns the seam between those who have letters (the processor, the Kafka consumer) and
those who run them (tasks, threads, processes). Knows no store and no decision: an
engine turns a letter into an outcome, and others say what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

from redrive.core.decide import Interrupted, Outcome
from redrive.core.why import Why

if TYPE_CHECKING:
    from redrive.core.letter import Letter
    from redrive.engine.handler import Handler

Done = Callable[[Any, Outcome], None]  # (ticket, outcome)
STOPPED = Interrupted(Why.STOPPED)  # what a letter comes to that an engine was told to stop, or not to start


class Engine(Protocol):
    """Runs letters, each to exactly one outcome. All methods are called on the event loop's thread."""

    def start(self, handler: Handler, letter: Letter, ticket: object, done: Done) -> None:
        """
        Run *letter*; call `done(ticket, outcome)` exactly once, on the event loop's thread.

        That may happen before this returns. *ticket* is the caller's own and comes back as it
        is. What the handler raises is an outcome; this raises only what *done* raises. The
        handler's timeout counts from when it begins, not from when it was started here.
        """

    async def close(self, grace: float) -> None:
        """
        Wait up to *grace* seconds for what runs, then stop it; may be called twice.

        Every letter that was started has its outcome once this returns: Interrupted for those
        that were stopped, and for those that are started from now on.
        """

    def interrupt(self) -> None:
        """Stop now: everything that runs or waits is Interrupted before this returns."""

    def recall(self, queues: Collection[str], why: Interrupted) -> None:
        """Give back, with the outcome *why*, letters of these *queues* that wait here and have not begun."""

    @property
    def leftovers(self) -> list[str]:
        """Return the names of handlers that still run although they were told to stop; nobody waits for them."""

    @property
    def exhausted(self) -> bool:
        """Whether this engine takes no more letters until the process is recycled."""

    @property
    def vacant(self) -> bool:
        """Whether the next letter with the same handler begins only when `done`, which is called now, returns."""
