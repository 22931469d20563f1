"""
Settings and handlers in, running parts out.

The only file that knows every driver. Owns which class stands behind a URL and how a
worker is put together; decides nothing else.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections import Counter
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlunsplit

from redrive.core.policy.backoffs import Backoffs
from redrive.engine.clock import SystemClock
from redrive.engine.runners.processes.pool import ProcessEngine
from redrive.engine.runners.tasks import TaskEngine
from redrive.engine.runners.threads import ThreadEngine
from redrive.engine.worker.breakers import Dependencies
from redrive.engine.worker.processor import Processor
from redrive.engine.worker.slots.capacity import Capacity
from redrive.engine.worker.slots.open_kinds import OpenKinds
from redrive.engine.worker.worker import Worker
from redrive.errors import NotSupported, SettingsError
from redrive.settings import load, masked
from redrive.signals.hub import Hub
from redrive.signals.log import log_facts, logs_routine
from redrive.signals.tracing import open_tracing
from redrive.stores.memory import MemoryStore
from redrive.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from urllib.parse import SplitResult

    from redrive.core.breaker import BreakerRules
    from redrive.core.budget import BudgetRules
    from redrive.core.letter import Draft
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import Engine
    from redrive.engine.worker.facts import Announce
    from redrive.settings import Settings
    from redrive.signals.otel import OpenTelemetry
    from redrive.signals.sentry import SentryReporter
    from redrive.sources.outbox.users import Outboxes
    from redrive.stores.contract import Store
    from redrive.stores.postgres import PostgresStore


def open_store(url: str, *, create: bool = True) -> Store:
    """
    Return the store behind *url*, not yet opened; raise SettingsError for one that is not known.

    Unless it may *create* it, opening a PostgreSQL store without its tables is refused.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "memory":
        _refuse_parameters(url)
        return MemoryStore(warns=True)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        _refuse_parameters(url)
        return SqliteStore(unquote(rest[1:]))
    if scheme in ("postgresql", "postgres"):
        return _postgres(url, create=create)
    like = "sqlite:///redrive.db, postgresql://user@host/database or memory://"
    raise SettingsError([f"cannot use the store {masked(url)!r}; it must be like {like}"])


class StoreHome:
    """A store by itself, for sources that need no application: settings, clock and log."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.clock, self.hub = settings, SystemClock(), Hub()
        self.backoffs = Backoffs()
        self.store = open_spooled(settings)
        self.tracing: OpenTelemetry | None = None
        self.hub.listen(log_facts, routine=logs_routine())

    async def open(self) -> None:
        """Open the store."""
        self.tracing = self.tracing or open_tracing(self.settings.tracing)
        if self.tracing is not None:
            self.store = self.tracing.watch(self.store)
            self.hub.listen(self.tracing.count)
        await self.store.open()

    async def close(self) -> None:
        """Close the store; what was accepted stays."""
        await self.store.close()


def open_home(url: str | None) -> StoreHome:
    """Return the store behind *url*, or behind the settings' own, with what goes with it."""
    return StoreHome(load(url=url))


def open_spooled(settings: Settings) -> Store:
    """Return the store of *settings*, behind a spool if they name one; not yet opened."""
    store = open_store(settings.url)
    if settings.spool is None:
        return store
    from redrive.stores.spool import SpoolStore

    return cast("Store", SpoolStore(store, settings.spool, limit=settings.spool_limit))


def _refuse_parameters(url: str) -> None:
    """Refuse parameters where there are none: the user means something by them, and would not get it."""
    plain, mark, given = url.partition("?")
    if mark:
        names = ", ".join(dict(parse_qsl(given, keep_blank_values=True))) or "an empty one"
        problem = (
            f"cannot use the store {plain!r} with parameters ({names}): such a URL takes none; "
            "leave them out, and write a ? in the name of a file as %3F"
        )
        raise SettingsError([problem])


def _postgres(url: str, *, create: bool) -> Store:
    """
    Return the PostgreSQL store behind *url*.

    `?schema=NAME` names the schema; `?pooled=yes` is for a transaction-mode pooler in between;
    `?listen=no` polls only, `?listen=HOST:PORT` listens there, past the pooler. All other parameters are
    PostgreSQL's own.
    """
    try:
        from redrive.stores.postgres import PostgresStore
        from redrive.stores.postgres.server.dsn import read_dsn
    except ModuleNotFoundError as missing:
        if missing.name != "asyncpg":
            raise
        raise SettingsError(
            [f"cannot use the store {masked(url)!r}: its driver is not installed; pip install 'redrive[postgres]'"]
        ) from None
    parts = read_dsn(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in pairs if name in _POSTGRES}
    rest = urlencode([(name, value) for name, value in pairs if name not in _POSTGRES])
    server = parts._replace(query=rest)
    return PostgresStore(
        urlunsplit(server),
        schema=ours.get("schema", "redrive"),
        pooled=_is_yes("pooled", ours.get("pooled", "no")),
        listen=_listen(ours.get("listen", "yes"), server),
        application=_application(sys.argv),
        create=create,
    )


def _application(argv: Sequence[str]) -> str:
    """Return `redrive` and the command, or the program that it works for: what an administrator sees of us."""
    path = PurePath(argv[0] if argv else "")
    if path.stem == "redrive" or path.parts[-3:-1] == ("redrive", "cli"):
        is_command = len(argv) > 1 and argv[1].isalpha()  # an option may be followed by a secret
        return f"redrive {argv[1]}" if is_command else "redrive"
    return f"redrive in {path.name}" if path.name else "redrive"


_POSTGRES = ("schema", "pooled", "listen")


def _listen(value: str, dsn: SplitResult) -> bool | str:
    """Return whether to listen, or the DSN to listen by: the same as the store's, but at another host and port."""
    host, colon, port = value.rpartition(":")
    if not (colon and host and port.isdecimal()):
        return _is_yes("listen", value, "yes, no, or the HOST:PORT of the server itself")
    user, at, _ = dsn.netloc.rpartition("@")
    return urlunsplit(dsn._replace(netloc=f"{user}{at}{value}"))


def _is_yes(name: str, value: str, allowed: str = "yes or no") -> bool:
    if value.lower() not in ("yes", "no"):
        raise SettingsError([f"cannot read {name}={value!r} in the store's URL; it is {allowed}"])
    return value.lower() == "yes"


def open_reporter(settings: Settings) -> SentryReporter | None:
    """Return the reporter of dead letters to Sentry, or None; raise SettingsError if it cannot be set up."""
    if settings.sentry_dsn is None:
        return None
    from redrive.signals.sentry import report_to

    return report_to(settings.sentry_dsn, release=settings.release)


def open_outboxes(store: Store, draft: Callable[..., Draft], tracing: OpenTelemetry | None = None) -> Outboxes:
    """Return the outbox of *store* for users' own connections; raise NotSupported if it has none."""
    if not store.features.transactions:
        raise NotSupported(
            f"cannot use a connection of your own with {type(store).__name__}: its letters are not in your database; "
            "keep them in PostgreSQL (postgresql://…), or call enqueue()"
        )
    from redrive.sources.outbox.users import Outboxes

    return Outboxes(cast("PostgresStore", store), draft, None if tracing is None else tracing.enqueuing)


class WorkerParts(NamedTuple):
    """A worker and what a test wants to hold of it."""

    worker: Worker
    processor: Processor
    capacity: Capacity


def worker_name() -> str:
    """Return a name unique per process start: host and pid may come again."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def build_worker(
    store: Store,
    handlers: Mapping[str, Handler],
    concurrency: Mapping[str, int],
    breakers: Mapping[str, BreakerRules],
    settings: Settings,
    *,
    clock: Clock,
    announce: Announce,
    budgets: Mapping[str, BudgetRules | None],
    backoffs: Backoffs | None = None,
    tracing: OpenTelemetry | None = None,
) -> WorkerParts:
    """Put a worker together for *handlers*; *budgets* are those of queues that say something of theirs."""
    handlers = dict(handlers)  # the worker adds the kinds that handlers such as `kafka.*` meet
    capacity = Capacity(
        handlers.values(),
        dict(concurrency),
        default=settings.concurrency,
        prefetch=settings.prefetch,
        generation=settings.generation,
    )
    engines = _engines(handlers, capacity, clock)
    if tracing is not None:
        handlers, engines = _traced(tracing, handlers, engines)
    tools = _Tools(worker_name(), store, engines, capacity, Dependencies(store, breakers, announce))
    processor = Processor(
        store,
        handlers,
        tools.engines,
        capacity,
        tools.dependencies,
        clock=clock,
        announce=announce,
        worker=tools.name,
        lease=settings.lease_seconds,
        release=settings.release,
        budgets=_asked_for(budgets, handlers, settings.budget),
        backoffs=backoffs,
    )
    open_kinds = OpenKinds(store, handlers, capacity)
    return WorkerParts(_worker(tools, processor, open_kinds, settings, clock, announce), processor, capacity)


def _traced(
    tracing: OpenTelemetry, handlers: Mapping[str, Handler], engines: Mapping[str, Engine]
) -> tuple[dict[str, Handler], dict[str, Engine]]:
    """Put a span around each run of a handler; the engine itself knows nothing of it."""
    from redrive.signals.otel.engines import Runs, TracedEngine, TracedProcesses, TracedThreads

    runs = Runs(tracing.handling, tracing.handled)
    called = {kind: replace(handler, call=runs.around(handler.call)) for kind, handler in handlers.items()}
    kinds = {"async": TracedEngine, "thread": TracedThreads, "process": TracedProcesses}
    watched = {name: kinds[name](engine, runs) for name, engine in engines.items()}
    return called, cast("dict[str, Engine]", watched)


def _asked_for(
    declared: Mapping[str, BudgetRules | None], handlers: Mapping[str, Handler], default: BudgetRules | None
) -> dict[str, BudgetRules]:
    """Return the retry budgets of the queues that have one."""
    found = {handler.queue: declared.get(handler.queue, default) for handler in handlers.values()}
    return {queue: rules for queue, rules in found.items() if rules is not None}


class _Tools(NamedTuple):
    """What a worker shares with its processor."""

    name: str
    store: Store
    engines: dict[str, Engine]
    capacity: Capacity
    dependencies: Dependencies


def _worker(
    tools: _Tools,
    processor: Processor,
    open_kinds: OpenKinds,
    settings: Settings,
    clock: Clock,
    announce: Announce,
) -> Worker:
    return Worker(
        tools.name,
        tools.store,
        processor,
        tools.engines,
        tools.capacity,
        tools.dependencies,
        open_kinds=open_kinds,
        clock=clock,
        announce=announce,
        lease=settings.lease_seconds,
        sweep=settings.sweep_seconds,
        poll=settings.poll_seconds,
        drain=settings.drain_seconds,
        retention=settings.retention,
    )


def _engines(handlers: Mapping[str, Handler], capacity: Capacity, clock: Clock) -> dict[str, Engine]:
    """Return the engines that these handlers need, each with room for all letters that may run at once."""
    sizes: Counter[str] = Counter()
    for handler in handlers.values():
        sizes[handler.engine] += capacity.by_kind[handler.kind].concurrency
    made: dict[str, Engine] = {}
    if "async" in sizes:
        made["async"] = TaskEngine(clock=clock)
    if "thread" in sizes:
        made["thread"] = ThreadEngine(sizes["thread"], clock=clock)
    if "process" in sizes:  # more of them than processors only take turns
        made["process"] = ProcessEngine(min(sizes["process"], os.cpu_count() or 1), clock=clock)
    return made
