"""
What every execution engine promises.

Owns the seam between what has letters (the processor, the Kafka consumer) and what runs them (tasks,
threads, processes). Knows no store and no decision: an engine turns an item into an outcome, and the
caller decides what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from redrive.core.decide import Interrupted, Outcome
from redrive.core.why import Why

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from redrive.core.letter import Letter
    from redrive.engine.handler import Handler

    T = TypeVarWithDefault("T", default=Letter)  # a bare `Engine` runs letters
else:
    T = TypeVar("T")

OnOutcome = Callable[[Any, Outcome], None]  # (ticket, outcome)
STOPPED = Interrupted(Why.STOPPED)  # the outcome of an item that the engine stopped, or did not start


class Engine(Protocol[T]):
    """Runs items, each to exactly one outcome: letters, or what a source runs. Called on the event loop's thread."""

    def start(self, handler: Handler[T], item: T, ticket: object, done: OnOutcome) -> None:
        """
        Run *item*; call `done(ticket, outcome)` exactly once, on the event loop's thread.

        That may happen before this returns. *ticket* belongs to the caller and comes back unchanged.
        What the handler raises is an outcome; this raises only what *done* raises. The handler's
        timeout counts from when the handler begins, not from this call.
        """

    async def close(self, grace: float) -> None:
        """
        Wait up to *grace* seconds for what runs, then stop it; may be called twice.

        Every item that was started has its outcome once this returns: Interrupted for those
        that were stopped, and for those that are started from now on.
        """

    def interrupt(self) -> None:
        """Stop now: everything that runs or waits is Interrupted before this returns."""

    def recall(self, queues: Collection[str], why: Interrupted) -> None:
        """Give back, with the outcome *why*, letters of these *queues* that wait here and have not begun."""

    @property
    def leftovers(self) -> list[str]:
        """The names of handlers that still run although the engine told them to stop."""

    @property
    def exhausted(self) -> bool:
        """Whether this engine takes no more items until the process is recycled."""

    @property
    def vacant(self) -> bool:
        """True while `done` runs inside a task that can take the next item, which then runs after `done` returns."""


@runtime_checkable
class HandsOver(Protocol):
    """What an engine can do besides that takes many letters of a quick handler in one step."""

    def share(self, handler: Handler) -> int:
        """Return how many letters of *handler* may be started together: 1, unless its recent runs were very short."""

    def start_many(self, handler: Handler, items: Sequence[tuple[Letter, object]], done: OnOutcome) -> None:
        """Run items, each with its ticket, one after the other; each has an outcome of its own. See `Engine.start`."""

    def recall_late(self, before: float, why: Interrupted) -> None:
        """Give back, with the outcome *why*, items that were started together before that time and have not begun."""

    @property
    def holds(self) -> bool:
        """Whether items that were started together have not begun."""
