"""
What the workflow queue stands on.

Owns the names that it needs of an application (`redrive.Redrive` is one) and the port through which it opens the
store behind a URL: `wiring` fills it. Knows no driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from redrive.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.facts import Fact
    from redrive.core.policy.backoffs import Backoffs
    from redrive.engine.clock import Clock
    from redrive.signals.otel import OpenTelemetry
    from redrive.stores.contract import Store


class QueueSettings(Protocol):
    """The settings that the queue goes by."""

    @property
    def dlq_enabled(self) -> bool:
        """Whether failed workflows are kept at all."""

    @property
    def dlq_max_size(self) -> int:
        """How many tasks a queue holds that names no size of its own."""

    @property
    def dlq_retry_processor_enabled(self) -> bool:
        """Whether retries run in the background."""

    @property
    def dlq_retry_interval_seconds(self) -> float:
        """How long a cycle of retries lasts."""

    @property
    def dlq_default_retry_policy(self) -> str:
        """The policy of tasks that name none."""

    @property
    def dlq_default_max_retries(self) -> int:
        """The retries of tasks that say nothing of it."""

    @property
    def lease_seconds(self) -> float:
        """How long a claim lasts without a sign of life."""

    @property
    def sweep_seconds(self) -> float:
        """How often what dead processes held is looked for."""

    @property
    def by(self) -> str | None:
        """Who acts, for the audit log."""


@runtime_checkable
class Home(Protocol):
    """Where the tasks are kept, and what goes with it."""

    @property
    def settings(self) -> QueueSettings:
        """What the queue goes by."""

    @property
    def store(self) -> Store:
        """Where the tasks are kept."""

    @property
    def clock(self) -> Clock:
        """Time and chance."""

    @property
    def backoffs(self) -> Backoffs:
        """The backoff functions that are registered, by name."""

    @property
    def hub(self) -> Callable[[Fact], None]:
        """Takes the facts."""

    @property
    def tracing(self) -> OpenTelemetry | None:
        """What makes spans, or None."""

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
    if isinstance(store, Home):
        return store, False
    kind = type(store).__name__
    raise SourceError(f"cannot keep tasks in a {kind}: store= takes a URL, such as 'sqlite:///redrive.db', or an app")
