"""
The inbox: sources in front of an application.

Owns how sources, the application and the ASGI sides are put together, the worker that the lifespan starts, and which
handlers take a source's events. Knows no request and no signature.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Literal

from redrive.core.classify import INBOX
from redrive.engine.clock import unix_ms
from redrive.engine.switch_interval import quick_switching
from redrive.errors import RedriveError, SettingsError, StoreUnavailable
from redrive.signals.log import write
from redrive.sources.webhook.checking import Checker
from redrive.sources.webhook.config import QUEUE
from redrive.sources.webhook.counts import InboxCounts
from redrive.sources.webhook.receiving.admin import Admin
from redrive.sources.webhook.receiving.body import Bodies
from redrive.sources.webhook.receiving.intake import Intake
from redrive.sources.webhook.receiving.public import Receiver
from redrive.sources.webhook.secrets import resolve
from redrive.sources.webhook.source import Source, names_of, read_source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping, Sequence

    from redrive.signals.otel import OpenTelemetry
    from redrive.sources.webhook.config import InboxConfig
    from redrive.sources.webhook.forwarding.sender import Forwarder
    from redrive.sources.webhook.port import App, InboxSettings
    from redrive.sources.webhook.receiving.answers import Answer, Send
    from redrive.sources.webhook.receiving.body import Receive
    from redrive.sources.webhook.receiving.intake import Arrived

_AWAY = 0.5  # seconds between two tries to reach a store that is away
_KEPT_OPTIONS = ("policy", "rules", "breaker", "timeout", "concurrency", "engine", "succeeded")


def _unix_now() -> float:
    return unix_ms() / 1_000


class Inbox:
    """
    An ASGI application that keeps webhooks as letters of *app*: `POST /{source}`.

    *sources* are those of `[inbox.sources]` in the settings if not given. With *workers*="elsewhere" another process
    has the handlers. `inbox.lifespan` starts the worker; `inbox.admin` answers operators. Raise SettingsError with
    every problem at once.
    """

    def __init__(
        self,
        app: App,
        sources: Iterable[Source] | None = None,
        *,
        workers: Literal["here", "elsewhere"] = "here",
        now: Callable[[], float] = _unix_now,
    ) -> None:
        if workers not in ("here", "elsewhere"):
            raise SettingsError([f"workers is {workers!r} and must be 'here' or 'elsewhere'"])
        self.app, self.workers = app, workers
        self.config: InboxConfig = app.settings.inbox_config
        self.sources = names_of(tuple(sources) if sources is not None else read_sources(app.settings.inbox))
        self.checkers = _checkers(self.sources.values(), app.settings.secret)
        self.counts = InboxCounts()
        self._intake = Intake(app, self.config, self.counts, now, elsewhere=workers == "elsewhere")
        self.receiver = Receiver(self.checkers, self._intake, Bodies(self.config))
        self.admin = Admin(app, self.sources, self.counts, self.reasons)
        self._forwarders = _forwarders(self.sources.values(), app.settings.secret, now, lambda: app.tracing)
        self.worker: asyncio.Task[bool] | None = None
        self._leaving = asyncio.Event()
        self._has_warned = self._has_adopted = False
        self._declare()

    # ------------------------------------------------------------------ handlers

    def _declare(self) -> None:
        """Tell the application of the inbox's queue and of what handlers of its sources get if they say nothing."""
        self.app.queue(QUEUE, max_size=self.config.queue_maxsize)
        for source in self.sources.values():
            self.app.handler_defaults(
                source.name,
                queue=QUEUE,
                policy=self.config.policy,
                rules=INBOX,
                terminal_errors=tuple(source.terminal_errors),
            )
            if source.forward is not None:
                # A queue of its own: one that is paused, or slow, holds up no other source.
                self.app.queue(
                    f"{QUEUE}.{source.name}", max_size=self.config.queue_maxsize, ordered=True, rate=source.forward.rate
                )
        self._declare_retention()
        self.app.on_open(self._prepare)

    def _declare_retention(self) -> None:
        days = {"retention_delivered_days": self.config.retention_days}
        if self.config.retention_failed_days is not None:
            days["retention_failed_days"] = self.config.retention_failed_days
        given = self.app.settings.model_fields_set
        self.app.settings = self.app.settings.model_copy(
            update={name: value for name, value in days.items() if name not in given}
        )

    async def _prepare(self) -> None:
        """Let forwards take the events of sources without a handler of their own, then look after letters kept."""
        for name, forwarder in self._forwarders.items():
            forward = self.sources[name].forward
            if name not in self.app.handlers and forward is not None:
                concurrency, queue = forward.concurrency, f"{QUEUE}.{name}"
                self.app.add_handler(
                    name, forwarder.send, queue=queue, concurrency=concurrency, breaker=forwarder.breaker
                )
        self._has_adopted = False
        with contextlib.suppress(StoreUnavailable):  # behind a spool: done when the store is back
            await self._adopt()

    async def _adopt(self) -> None:
        """Let a source's own handler take letters of its types that have no handler of their own any more, or yet."""
        for status in ("pending", "failed"):
            for tally in await self.app.store.tallies(status):
                name = tally.kind.partition(".")[0]
                if name in self.sources and tally.kind not in self.app.handlers and name in self.app.handlers:
                    own = self.app.handlers[name]
                    options: Any = {option: getattr(own, option) for option in _KEPT_OPTIONS}
                    self.app.add_handler(tally.kind, own.function, queue=tally.queue, **options)
        self._has_adopted = True

    # ------------------------------------------------------------------ serving

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan of an inbox that stands alone."""
        if scope["type"] == "lifespan":
            await self._serve_lifespan(receive, send)
        elif scope["type"] == "http":
            self._warn()
            await self.receiver(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    def take(self, checker: Checker, arrived: Arrived) -> Awaitable[Answer]:
        """Return the answer to a request that was read to its end; awaited."""
        self._warn()
        return self._intake.take(checker, arrived)

    def reasons(self) -> list[str]:
        """Return why the inbox is not ready to take events; nothing if it is."""
        if self._leaving.is_set():
            return ["it is shutting down"]
        if self.workers == "here" and self.app.handlers and (self.worker is None or self.worker.done()):
            return ["its worker does not run"]
        return []

    def leave(self) -> None:
        """Say that the process is about to end: `/ready` turns 503 while requests under way finish."""
        self._leaving.set()

    @contextlib.asynccontextmanager
    async def lifespan(self, _asgi: object = None) -> AsyncIterator[None]:
        """
        Open the application and run its worker meanwhile: `FastAPI(lifespan=inbox.lifespan)`.

        A store that is away does not end it: events are answered 503, or kept in the spool, until it is back.
        """
        await self._reach()
        if self._intake.is_waiting or self._has_work:
            self.worker = asyncio.create_task(self._work(), name="redrive inbox worker")
            self.worker.add_done_callback(_report)
        try:
            with quick_switching():  # also without a worker here: requests would keep the store's writer waiting
                yield
        finally:
            self.leave()
            await self._stop_worker()
            await self.close()
            await self.app.close()

    @property
    def _has_work(self) -> bool:
        return self.workers == "here" and bool(self.app.handlers)

    async def _reach(self) -> None:
        """Open the application, note whether its store is there, and log it if it is not."""
        try:
            await self.app.open()
            if not self._has_adopted:
                await self._adopt()
        except StoreUnavailable as error:
            if not self._intake.is_waiting:
                told = "the store is away; the inbox tries again until it is back"
                write("warning", "redrive.inbox.store_away", {"told": told, "error": str(error)})
            self._intake.is_waiting = True
        else:
            self._intake.is_waiting = False

    async def _work(self) -> bool:
        """Run the worker as soon as the store is there; an inbox without handlers only waits for its end."""
        while self._intake.is_waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AWAY):
                    return await self._leaving.wait()
            await self._reach()
        if self._has_work and not self._leaving.is_set():  # a worker that begins later would not be told to stop
            return await self.app.run(signals=False)
        return await self._leaving.wait()

    async def close(self) -> None:
        """Close the connections of forwards; the application stays open."""
        for forwarder in self._forwarders.values():
            await forwarder.close()

    async def _stop_worker(self) -> None:
        if self.worker is None:
            return
        await asyncio.sleep(0)  # a worker that was started a moment ago can be told to stop only once it runs
        self.app.stop()
        with contextlib.suppress(RedriveError):  # it was reported when it ended
            await self.worker

    def _warn(self) -> None:
        if self.workers == "here" and self.worker is None and not self._has_warned:
            self._has_warned = True
            told = "events are kept, and no worker of this inbox runs"
            hint = "pass lifespan=inbox.lifespan to your application, or say Inbox(…, workers='elsewhere')"
            write("warning", "redrive.inbox.no_worker", {"told": told, "do": hint})

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.lifespan())
            except RedriveError as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def read_sources(table: dict[str, Any]) -> Sequence[Source]:
    """Return the sources of `[inbox.sources]`; raise SettingsError with every problem at once."""
    tables = table.get("sources", {})
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise SettingsError(["[inbox.sources] must hold one table for each source, such as [inbox.sources.stripe]"])
    made, problems = [], []
    for name, each in tables.items():
        try:
            made.append(read_source(name, each))
        except SettingsError as error:
            problems += error.problems
    if problems:
        raise SettingsError(problems)
    return made


def problems_of(settings: InboxSettings) -> list[str]:
    """Return what is wrong with `[inbox]`, its sources and their secrets, for `redrive check`."""
    problems: list[str] = []
    for look in (
        lambda: settings.inbox_config,
        lambda: _checkers(read_sources(settings.inbox), settings.secret),
    ):
        try:
            look()
        except SettingsError as error:
            problems += error.problems
    return problems


def _checkers(sources: Iterable[Source], read: Callable[[str], str]) -> dict[str, Checker]:
    made, problems = {}, []
    for source in sources:
        try:
            made[source.name] = Checker(source, read)
        except SettingsError as error:
            problems += error.problems
    if problems:
        raise SettingsError(problems)
    return made


def _forwarders(
    sources: Iterable[Source],
    read: Callable[[str], str],
    now: Callable[[], float],
    tracing: Callable[[], OpenTelemetry | None],
) -> dict[str, Forwarder]:
    made = {}
    for source in (each for each in sources if each.forward is not None):
        from redrive.sources.webhook.forwarding.sender import Forwarder  # noqa: PLC0415 - needs the extra `webhook`

        forward: Any = source.forward
        whose = f"the forward of source {source.name!r}"
        secrets = resolve(whose, [forward.secret] if forward.secret else [], read, is_standard=True)
        made[source.name] = Forwarder(forward, secrets[0].key if secrets else None, now, tracing=tracing)
    return made


def _report(worker: asyncio.Task[bool]) -> None:
    if not worker.cancelled() and (error := worker.exception()) is not None:
        write("error", "redrive.inbox.worker_ended", {"error_type": type(error).__name__, "do": "restart the process"})
