"""
The face users hold.

Owns sending letters and running workers; `engine/declared.py` keeps what the application declares, and `opening.py`
its store. Each method is a few steps over store, desk and worker. Knows no rule.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, Unpack, cast, overload

from redrive.desk.act.plan import OFFER
from redrive.desk.desk import Desk
from redrive.drafts import drafts_of, make_draft
from redrive.engine.clock import SystemClock
from redrive.engine.declared import Declared
from redrive.engine.worker.facts import accepted
from redrive.engine.worker.running import RunningWorkers
from redrive.opening import OpenedStore
from redrive.settings import load
from redrive.signals.hub import Hub
from redrive.stores.process import THIS
from redrive.sync.calls import Sync
from redrive.wiring import build_worker, open_outboxes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from redrive.core.budget import BudgetRules
    from redrive.core.facts import Fact
    from redrive.core.letter import Draft, Letter
    from redrive.core.policy.backoffs import Backoffs
    from redrive.core.sending import Publisher
    from redrive.drafts import DraftOptions
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.options import BreakerOptions, Options
    from redrive.engine.queue_limits import QueueLimits
    from redrive.settings import Settings
    from redrive.signals.otel import OpenTelemetry
    from redrive.signals.tracing import Tracing
    from redrive.sources.outbox.connections import AsyncpgConnection, AwaitedConnection, BlockingConnection
    from redrive.sources.outbox.face import AsyncOutbox, Outbox
    from redrive.sources.outbox.users import Outboxes
    from redrive.stores.contract import Receipt, Store
    from redrive.sync.faces import SyncRedrive
    from redrive.wiring import WorkerParts

F = TypeVar("F", bound="Callable[..., Any]")


class Redrive:
    """
    Durable work with retries, dead letters and replay.

    *url* is `sqlite:///file.db`, `postgresql://user@host/database` or `memory://`; if it is not given, `REDRIVE_URL` or
    `redrive.toml` names it. Other keyword arguments are settings (see the reference) and win over both; *tracing* may
    also be an `OpenTelemetry` with providers of its own.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        clock: Clock | None = None,
        tracing: Tracing = None,
        **settings: Any,
    ) -> None:
        self.settings: Settings = load(url=url, tracing=None if tracing is None else bool(tracing), **settings)
        self.clock: Clock = clock or SystemClock()
        self.hub = Hub()
        self._declared = Declared()
        self.handlers: dict[str, Handler] = self._declared.handlers
        self._queue_of = self._declared.queue_of
        self._opened = OpenedStore(store, self.settings, self._declared, self.hub, tracing)
        self._outboxes: Outboxes | None = None
        self._offer = OFFER
        self._running = RunningWorkers()
        self._syncs: dict[bool, Sync] = {}  # by whether it needs connections of its own

    @property
    def store(self) -> Store:
        """The store that keeps the letters; after a fork another one, once it is opened."""
        return self._opened.store

    @property
    def tracing(self) -> OpenTelemetry | None:
        """What traces letters, if the application asks for it; known once the store is opened."""
        return self._opened.tracing

    # ------------------------------------------------------------------ declaring

    def handler(self, kind: str, **options: Unpack[Options]) -> Callable[[F], F]:
        """Register the decorated function as the handler of *kind*; see `Options` for what it may say."""
        return self._declared.registering(kind, options)

    def add_handler(self, kind: str, function: Callable[..., Any], **options: Unpack[Options]) -> Handler:
        """
        Register *function* as the handler of *kind*; raise HandlerError if that is impossible.

        A kind that ends in `.*`, such as `kafka.*`, stands for all kinds that begin with `kafka.` and have no handler
        of their own.
        """
        return self._declared.add_handler(kind, function, options)

    def handler_defaults(self, name: str, **options: Unpack[Options]) -> None:
        """
        Give *options* to the handlers of *name* and of kinds below it (`stripe`, `stripe.invoice.paid`).

        A handler keeps each option that it was registered with. Handlers that are registered already get them, too.
        """
        self._declared.handler_defaults(name, options)

    def on_open(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """Await *prepare* each time after the store was opened, before a worker claims letters; sources use it."""
        self._opened.on_open(prepare)

    def publisher(self, kind: str, publisher: Publisher, **options: Unpack[Options]) -> Handler:
        """
        Let *publisher* send the letters of *kind* to another system: an event to a broker, a dead letter back to Kafka.

        A letter is delivered once the other side has confirmed it. What the publisher raises is a failed attempt;
        an error of category validation, permission or permanent makes the letter a dead letter at once.
        """
        return self._declared.add_publisher(kind, publisher, options)

    def relay(self, kind: str, relay: Publisher, **options: Unpack[Options]) -> Handler:
        """Do what `publisher` does, under the name that it had before; it goes with the next version."""
        return self.publisher(kind, relay, **options)

    def send_home(self, scheme: str, sender: Publisher, **options: Unpack[Options]) -> Handler:
        """
        Register *sender* for the kinds *scheme* and `scheme.*`, in a queue of that name.

        So `send_home("kafka", …)` sends collected letters of every topic back: those of `orders` have the kind
        `kafka.orders`. Its errors are judged by the rules of a handler, not by those of `publisher`.
        """
        return self._declared.send_home(scheme, sender, options)

    def queue(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        ordered: bool = False,
        max_size: int | None = None,
        rate: float | None = None,
        max_in_flight: int | None = None,
        retry_budget: BudgetRules | str | bool | None = None,
        **slips: Never,
    ) -> None:
        """
        Declare a queue: *concurrency* is per process, the other limits hold over all workers.

        *retry_budget* is True, or such as `"ratio=0.2,floor=10,burst=100"`: retries beyond it wait longer than
        their policy says. False is none, even if the setting of that name asks for one.
        """
        limits: QueueLimits = {
            "concurrency": concurrency,
            "max_size": max_size,
            "rate": rate,
            "max_in_flight": max_in_flight,
        }
        self._declared.queue(name, limits, ordered=ordered, retry_budget=retry_budget, slips=slips)

    def breaker(self, name: str, **rules: Unpack[BreakerOptions]) -> None:
        """Declare when the breaker of dependency *name* opens and how it heals; see `BreakerRules`."""
        self._declared.breaker(name, rules)

    def backoff(self, name: str, function: Callable[[int], float]) -> None:
        """
        Register *function* as the backoff *name*; letters carry the name: `policy="custom:name=…"`.

        It takes the number of the try that failed, counted from 1, and returns seconds. Raise PolicyError unless what
        it returns is finite, not negative and bounded.
        """
        self._declared.backoffs.add(name, function)

    @property
    def backoffs(self) -> Backoffs:
        """The backoff functions that are registered, by name."""
        return self._declared.backoffs

    def unknown_backoffs(self) -> list[str]:
        """Return a sentence for each handler whose policy names a backoff function that is not registered."""
        return self._declared.unknown_backoffs()

    def subscribe(self, event: str, *handlers: str) -> None:
        """Let each of *handlers*, which are kinds, have a letter of its own of every event of kind *event*."""
        self._declared.subscriptions += [(event, handler) for handler in handlers]

    def listen(self, listener: Callable[[Fact], None]) -> None:
        """Call *listener* with every fact; what it raises never stops a letter."""
        self.hub.listen(listener)

    # ------------------------------------------------------------------ letters in

    def draft(self, kind: str, payload: Any, **options: Unpack[DraftOptions]) -> Draft:
        """Return a letter to be, for `enqueue_many`; takes what `enqueue` takes."""
        return make_draft(kind, payload, self._queue_of, **options)

    async def enqueue(self, kind: str, payload: Any, **options: Unpack[DraftOptions]) -> Receipt:
        """
        Keep a letter; it is durable once this returns.

        `DraftOptions` lists the options. The receipt has the `id` and whether it was a `duplicate`:
        a letter with the same idempotency key, queue and kind is kept already.
        Raise QueueFull, DraftError, LetterNotFound (an unknown `after`) or StoreUnavailable.
        """
        made = (make_draft(kind, payload, self._queue_of, **options),)
        if self._opened.opened_by != THIS.pid:
            await self._opened.open()
        receipts = await self._opened.store.put(made)  # not by enqueue_many: one coroutine less for each letter
        if self.hub.wants_routine:
            self._tell(made, receipts)
        return receipts[0]

    async def enqueue_many(self, drafts: Iterable[Draft]) -> list[Receipt]:
        """Keep all of *drafts* or none, in one transaction; any iterable of drafts will do."""
        made = drafts_of(drafts)
        if self._opened.opened_by != THIS.pid:
            await self._opened.open()
        receipts = await self._opened.store.put(made)
        if self.hub.wants_routine:
            self._tell(made, receipts)
        return receipts

    @overload
    def outbox(self, connection: BlockingConnection, *, wake: bool = True) -> Outbox: ...
    @overload
    def outbox(self, connection: AwaitedConnection | AsyncpgConnection, *, wake: bool = True) -> AsyncOutbox: ...
    def outbox(self, connection: Any, *, wake: bool = True) -> Outbox | AsyncOutbox:
        """
        Enqueue in the transaction of *connection*: `app.outbox(connection).enqueue(kind, payload)`, awaited if it is.

        Committed, the letter will be handled; rolled back, it never was. Without *wake*, workers
        find it when they poll.
        """
        return self._outbox_users().bind(connection, wake=wake)

    @overload
    def once(
        self, letter: Letter, connection: BlockingConnection, *, handler: str | None = None
    ) -> contextlib.AbstractContextManager[bool]: ...
    @overload
    def once(
        self, letter: Letter, connection: AwaitedConnection | AsyncpgConnection, *, handler: str | None = None
    ) -> contextlib.AbstractAsyncContextManager[bool]: ...
    def once(self, letter: Letter, connection: Any, *, handler: str | None = None) -> Any:
        """
        Open a transaction, or a savepoint, and give whether *letter* has had no effect yet: `with`, or `async with`.

        That it was handled is written in the same transaction as what the block writes.
        *handler* names the effect; the letter's handler or kind if not given.
        """
        return self._outbox_users().once(letter, connection, handler)

    def _outbox_users(self) -> Outboxes:
        if self._outboxes is None or self._outboxes.store is not self.store:
            self._opened.trace()
            self._outboxes = open_outboxes(self.store, self.draft, self.tracing)
        return self._outboxes

    def _tell(self, drafts: Sequence[Draft], receipts: Sequence[Receipt]) -> None:
        for fact in accepted(drafts, receipts):
            self.hub(fact)

    # ------------------------------------------------------------------ running

    async def run(
        self, *, until_idle: bool = False, queues: Sequence[str] = (), signals: bool = True, watchdog: bool = False
    ) -> bool:
        """
        Work on letters until stopped; with *until_idle*, until nothing is left to do, now or later (True, then).

        SIGTERM and SIGINT finish what runs and end; a second one stops now and gives the
        attempts back. *watchdog* ends the process if its event loop is blocked for long.
        Raise WorkerExhausted once too many threads hang in handlers that ran out of time.
        """
        await self.open()
        patience = self.settings.watchdog_seconds if watchdog else None
        worker = self.parts(queues).worker
        return await self._running.run(worker, until_idle=until_idle, signals=signals, watchdog=patience)

    def stop(self) -> None:
        """Let each `run` finish what runs and end; call again to stop them now. Any thread may call it."""
        self._running.stop()

    def parts(self, queues: Sequence[str] = ()) -> WorkerParts:
        """Put a worker together without running it: `redrive.testing` drives it by hand."""
        declared = self._declared
        return build_worker(
            self.store,
            declared.handlers_of(queues),
            declared.concurrency,
            declared.breakers,
            self.settings,
            clock=self.clock,
            announce=self.hub,
            budgets=declared.budgets,
            backoffs=declared.backoffs,
            tracing=self.tracing,
        )

    # ------------------------------------------------------------------ opening, looking, closing

    async def open(self) -> None:
        """Open the store and make the declared queues known; done by itself at first use."""
        await self._opened.open()

    async def close(self) -> None:
        """Close the store; what was accepted stays."""
        self._opened.opened_by = 0
        if self._outboxes is not None:
            await asyncio.to_thread(self._outboxes.close)  # it may wait for a server that is away
        await self._opened.close()

    @contextlib.contextmanager
    def using(self, store: Store, clock: Clock) -> Iterator[None]:
        """Keep letters in *store* and go by *clock* within the block, as `redrive.testing` needs it."""
        before = self.clock, self._offer
        self.clock, self._offer = clock, 0.0  # no worker runs by itself there
        try:
            with self._opened.using(store):
                yield
        finally:
            self.clock, self._offer = before

    async def __aenter__(self) -> Self:
        """Open it."""
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    @property
    def desk(self) -> Desk:
        """What an operator can do: list, group, explain, replay, archive, edit."""
        return Desk(self._opened.open, by=self.settings.by or "app", announce=self.hub, offer=self._offer)

    @property
    def sync(self) -> SyncRedrive:
        """
        The same application for code that cannot await: `app.sync.enqueue(…)`, `app.sync.desk.ls(…)`.

        A process may use it and `await app.…` at the same time, even if the store's connections belong to one loop.
        """
        apart = self.store.features.one_loop and self._opened.by_url
        if apart not in self._syncs:
            self._syncs[apart] = Sync(self._twin() if apart else self)
        return cast("SyncRedrive", self._syncs[apart])

    def _twin(self) -> Redrive:
        """Return this application with connections of its own, for another event loop."""
        twin = copy.copy(self)
        twin.__dict__.update(_opened=self._opened.twin(), _outboxes=None, _running=RunningWorkers())
        return twin
