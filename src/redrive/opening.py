"""
The store of an application, opened.

Owns that each process opens it once, whichever event loop or thread asks first, that a fork opens one of its own, and
what is made ready with it: tracing, declared queues, subscriptions, the log, Sentry. Knows no letter and no worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
from typing import TYPE_CHECKING, Self

from redrive.desk.act import subscriptions
from redrive.signals.log import log_facts, logs_routine
from redrive.signals.tracing import open_tracing
from redrive.stores.process import THIS
from redrive.wiring import open_reporter, open_spooled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from redrive.engine.declared import Declared
    from redrive.settings import Settings
    from redrive.signals.hub import Hub
    from redrive.signals.otel import OpenTelemetry
    from redrive.signals.sentry import SentryReporter
    from redrive.signals.tracing import Tracing
    from redrive.stores.contract import Store

_LOOK_AGAIN = 0.002  # seconds between two looks while another task or thread opens the store


class OpenedStore:
    """The store of one application, and whether this process has opened it."""

    def __init__(self, store: Store | None, settings: Settings, declared: Declared, hub: Hub, tracing: Tracing) -> None:
        self.by_url = store is None  # so another can be opened: after a fork, for another event loop
        self.store: Store = store or open_spooled(settings)
        self.tracing: OpenTelemetry | None = None  # known once the store is opened: the tracer may be set up late
        self.opened_by = 0  # the process: what was opened before a fork is not for the child
        self._settings, self._declared, self._hub, self._wants_tracing = settings, declared, hub, tracing
        self._prepare: list[Callable[[], Awaitable[None]]] = []
        self._reporters: list[SentryReporter] = []  # one at most, shared with the twin
        self._lock = threading.Lock()

    def twin(self) -> Self:
        """Return the same with connections of its own, for another event loop; sources prepare the original alone."""
        twin = copy.copy(self)
        own = {"store": open_spooled(self._settings), "opened_by": 0, "_prepare": [], "_lock": threading.Lock()}
        twin.__dict__.update(own)
        return twin

    def on_open(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """Await *prepare* each time after the store was opened."""
        self._prepare.append(prepare)

    async def open(self) -> Store:
        """Open the store, unless this process has; return it: a fork has a store of its own."""
        while not self._lock.acquire(blocking=False):  # noqa: ASYNC110 - others may open it on loops of their own
            await asyncio.sleep(_LOOK_AGAIN)
        try:
            if self.opened_by != THIS.pid:
                await self._open()
        finally:
            self._lock.release()
        return self.store

    async def _open(self) -> None:
        if self.opened_by and self.by_url:  # forked: the parent's store is left alone, not even closed
            self._parents, self.store = self.store, open_spooled(self._settings)
        self.trace()
        await self.store.open()
        await self._declare()
        self._hub.listen(log_facts, routine=logs_routine())
        self._report()
        for prepare in self._prepare:
            await prepare()
        self.opened_by = THIS.pid

    async def _declare(self) -> None:
        """Make the declared queues and subscriptions known to all workers of the store."""
        if self._declared.queues:
            await self.store.declare(tuple(self._declared.queues.values()))
        for wanted in self._declared.wanted_subscriptions():
            await subscriptions.subscribe(self.store, wanted, by=self._settings.by or "app")

    def trace(self) -> None:
        """Trace what goes in and out of the store, if the application traces."""
        wanted = self._settings.tracing if self._wants_tracing is None else self._wants_tracing
        self.tracing = self.tracing or open_tracing(wanted)
        if self.tracing is not None:
            self.store = self.tracing.watch(self.store)
            self._hub.listen(self.tracing.count)

    def _report(self) -> None:
        """Tell Sentry of dead letters, if that is set; a fork has a reporter of its own."""
        while self._reporters:
            self._hub.unlisten(self._reporters.pop())
        reporter = open_reporter(self._settings)
        if reporter is not None:
            self._reporters.append(reporter)
            self._hub.listen(reporter, routine=False)

    async def close(self) -> None:
        """Close the store; what was accepted stays."""
        await self.store.close()
        for reporter in self._reporters:
            await asyncio.to_thread(reporter.close)

    @contextlib.contextmanager
    def using(self, store: Store) -> Iterator[None]:
        """Put *store* in its place within the block."""
        before = self.store, self.opened_by
        self.store, self.opened_by = store, 0
        try:
            yield
        finally:
            self.store, self.opened_by = before
