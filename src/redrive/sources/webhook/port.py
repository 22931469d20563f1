"""
What the inbox needs of an application; `redrive.Redrive` is one.

Owns the names of the port. Knows nothing of what stands behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Unpack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from redrive.core.letter import Draft
    from redrive.drafts import DraftOptions
    from redrive.engine.handler import Handler
    from redrive.engine.options import BreakerOptions, Options
    from redrive.signals.hub import Hub
    from redrive.signals.otel import OpenTelemetry
    from redrive.sources.webhook.config import InboxConfig
    from redrive.stores.contract import Receipt, Store


class InboxSettings(Protocol):
    """What the inbox reads of the settings."""

    inbox: dict[str, Any]

    @property
    def inbox_config(self) -> InboxConfig:
        """The inbox's own settings."""

    def secret(self, reference: str) -> str:
        """Return what `env:NAME` or `file:PATH` holds."""

    @property
    def model_fields_set(self) -> set[str]:
        """The settings that were given."""

    def model_copy(self, *, update: dict[str, Any]) -> Any:
        """Return the settings with *update*."""


class App(Protocol):
    """An application that the inbox puts letters into."""

    settings: Any  # InboxSettings; a protocol cannot say that the inbox may also replace them
    handlers: dict[str, Handler]
    hub: Hub

    @property
    def store(self) -> Store:
        """The store that keeps the letters."""

    @property
    def tracing(self) -> OpenTelemetry | None:
        """What traces letters, if the application asks for it."""

    def queue(
        self, name: str, *, max_size: int | None = None, ordered: bool = False, rate: float | None = None
    ) -> None:
        """Declare a queue."""

    def breaker(self, name: str, **rules: Unpack[BreakerOptions]) -> None:
        """Declare a breaker."""

    def handler_defaults(self, name: str, **options: Unpack[Options]) -> None:
        """Give options to handlers of a source."""

    def add_handler(self, kind: str, function: Callable[..., Any], **options: Unpack[Options]) -> Handler:
        """Register a handler."""

    def on_open(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """Await *prepare* each time after the store was opened."""

    def draft(self, kind: str, payload: Any, **options: Unpack[DraftOptions]) -> Draft:
        """Return a letter to be."""

    async def enqueue_many(self, drafts: Iterable[Draft]) -> list[Receipt]:
        """Keep all of *drafts* or none."""

    async def open(self) -> None:
        """Open the store."""

    async def run(self, *, signals: bool = True) -> bool:
        """Work on letters until stopped."""

    def stop(self) -> None:
        """Let each `run` finish what runs and end."""

    async def close(self) -> None:
        """Close the store."""
