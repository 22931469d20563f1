"""
What the workflow queue stands on.

Owns the names that it needs of an application (`redrive.Redrive` is one) and the port through which it opens the
store behind a URL: `wiring` fills it. Knows no driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from redrive.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.facts import Fact
    from redrive.engine.clock import Clock
    from redrive.stores.contract import Store


class Home(Protocol):
    """Where the tasks are kept, and what goes with it."""

    @property
    def settings(self) -> Any:
        """Has the fields `dlq_*`, `lease_seconds`, `sweep_seconds` and `by`."""

    @property
    def store(self) -> Store:
        """Where the tasks are kept."""

    @property
    def clock(self) -> Clock:
        """Time and chance."""

    @property
    def hub(self) -> Callable[[Fact], None]:
        """Takes the facts."""

    async def open(self) -> None:
        """Open the store; may be called again."""

    async def close(self) -> None:
        """Close the store."""


_openers: list[Callable[[str | None], Home]] = []


def fill(opener: Callable[[str | None], Home]) -> None:
    """Let *opener* open URLs; None stands for the settings' own."""
    _openers[:] = [opener]


def open_home(store: object) -> tuple[Home, bool]:
    """Return where *store* (a URL, an application, or None) keeps its tasks, and whether the queue is to close it."""
    if store is None or isinstance(store, str):
        if not _openers:
            raise SourceError("cannot open a store for the workflow queue: import it from redrive.workflow")
        return _openers[0](store), True
    if not hasattr(store, "settings") or not hasattr(store, "store"):
        kind = type(store).__name__
        raise SourceError(
            f"cannot keep tasks in a {kind}: store= takes a URL, such as 'sqlite:///redrive.db', or an app"
        )
    return store, False  # type: ignore[return-value]  # checked as far as a protocol can be
