"""
The types of `app.sync`, for editors and type checkers.

Owns no behaviour: `calls.py` makes the calls. Written by `tests/typing/generate.py` from `Redrive` and `Desk`; change
those, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from typing import Literal, Never, Unpack

    from redrive.core.budget import BudgetRules
    from redrive.core.facts import Fact
    from redrive.core.letter import Draft, Letter
    from redrive.core.plan import Plan
    from redrive.core.policy import RetryPolicy
    from redrive.core.policy.backoffs import Backoffs
    from redrive.core.query import Lens
    from redrive.core.sending import Publisher
    from redrive.desk.act.acts import Done
    from redrive.desk.act.edit import EditedLetter
    from redrive.desk.act.outcome import PlanOutcome
    from redrive.desk.act.plan import PlanView, Preview
    from redrive.desk.act.queues import QueueView
    from redrive.desk.dlq import DlqEventDetail, DlqEvents
    from redrive.desk.look.audit import AuditLine
    from redrive.desk.look.explain import Explanation, WhatIf
    from redrive.desk.look.group import GroupView
    from redrive.desk.look.lens import LensView
    from redrive.desk.look.stats import Stats
    from redrive.desk.look.views import LetterSheet, Listing
    from redrive.drafts import DraftOptions
    from redrive.engine.handler import Handler
    from redrive.engine.options import BreakerOptions, Options
    from redrive.settings import Settings
    from redrive.sources.outbox.connections import AsyncpgConnection, AwaitedConnection, BlockingConnection
    from redrive.sources.outbox.face import AsyncOutbox, Outbox
    from redrive.stores.contract import Page, Receipt, Subscription

F = TypeVar("F", bound="Callable[..., Any]")


class SyncDesk(Protocol):
    """`Desk` for code that cannot await."""

    def show(self, letter_id: str) -> Letter:
        """Return the letter, by its id or the end of it; raise LetterNotFound or AmbiguousId."""

    def sheet(self, letter_id: str) -> LetterSheet:
        """Return the letter as its documented JSON: everything that is kept of it; raise as `show` does."""

    def ls(self, query: str = "", *, cursor: str | None = None, limit: int = 50, payloads: bool = True) -> Page:
        """Return a page of letters that match, newest first; without *payloads* theirs are empty."""

    def listing(self, query: str = "", *, cursor: str | None = None, limit: int = 50) -> Listing:
        """Return a page of letters that match, newest first, as its documented JSON: a row each, without payloads."""

    def count(self, query: str = "", *, at_most: int = ...) -> int:
        """Count the letters that match, but not beyond *at_most*."""

    @overload
    def groups(
        self, query: str = "", *, by: Literal["fingerprint"] = "fingerprint", limit: int = 50
    ) -> list[GroupView]: ...

    @overload
    def groups(self, query: str = "", *, by: Lens, limit: int = 50) -> list[LensView]: ...

    def stats(self, *, weeks: int = ...) -> Stats:
        """Return the books and their breakdowns, and what failed in each of the last *weeks*."""

    def explain(self, letter_id: str) -> Explanation:
        """Say why the letter stands where it stands."""

    def what_if(self, letter_id: str, policy: RetryPolicy | str) -> WhatIf:
        """Return the schedule that another policy would have given to the letter."""

    def audit(self, *, limit: int = 100) -> list[AuditLine]:
        """Return the newest acts, newest first."""

    def replay(
        self,
        *ids: str,
        query: str = "",
        reason: str = "",
        limit: int | None = None,
        rate: float | None = None,
        generation: int | None = None,
    ) -> Done:
        """
        Give failed letters another cycle.

        *limit* replays at most so many of the query's letters (a canary), *rate* at most so many a second;
        *generation* stamps them for workers of that generation.
        """

    def archive(self, *ids: str, query: str = "", reason: str = "") -> Done:
        """Decide that failed letters need no handling."""

    def cancel(self, *ids: str, query: str = "", reason: str = "") -> Done:
        """Archive pending letters before they run."""

    def restore(self, *ids: str, query: str = "", reason: str = "") -> Done:
        """Bring archived letters back to where they were archived from."""

    def purge(self, *ids: str, query: str = "", reason: str = "") -> Done:
        """Remove archived letters; this cannot be undone. The books keep their number."""

    def act(
        self,
        verb: str,
        *ids: str,
        query: str = "",
        reason: str = "",
        limit: int | None = None,
        rate: float | None = None,
        generation: int | None = None,
    ) -> Done:
        """Apply *verb* (replay, archive, cancel, restore or purge) to letters named by id or by query."""

    def edit(
        self, letter_id: str, payload: bytes, *, version: int, reason: str = "", content_type: str | None = None
    ) -> EditedLetter:
        """Replace the payload of a letter that was read as *version*; raise EditConflict if it changed since."""

    def preview(self, verb: str, query: str, *, at_most: int = ...) -> Preview:
        """Count (up to *at_most*) and sample what a plan would act on; nothing is written."""

    def start(
        self,
        verb: str,
        query: str,
        *,
        reason: str = "",
        limit: int | None = None,
        rate: float | None = None,
        generation: int | None = None,
        paused: bool = True,
    ) -> Plan:
        """Keep a plan; it acts on nothing until it is carried out. One that is not *paused* any worker may begin."""

    def plan(self, plan_id: str) -> Plan:
        """Return a plan; raise PlanNotFound."""

    def plans(self, state: str | None = None, *, limit: int = 50) -> list[PlanView]:
        """Return plans, newest first; with *state* those that are running, paused, halted or done."""

    def carry_out(
        self, plan_id: str, *, rate: float | None = None, progress: Callable[[Plan], object] | None = None
    ) -> Plan:
        """
        Have a plan carried out, or go on where it stopped; return it once it is done, paused or halted.

        A worker carries it out; if none takes it in time, this process does. *rate* replaces the plan's.
        """

    def pause_plan(self, plan_id: str, *, reason: str = "") -> PlanView:
        """Stop a plan after the page that it is at; `resume_plan` lets it go on."""

    def resume_plan(self, plan_id: str, *, reason: str = "", rate: float | None = None) -> PlanView:
        """Let workers go on with a plan; *rate* replaces the plan's."""

    def halt_plan(self, plan_id: str, *, reason: str = "") -> PlanView:
        """End a plan after the page that it is at; it cannot be resumed."""

    def outcome(self, plan_id: str, *, wait: float = ...) -> PlanOutcome:
        """Wait until the letters of a replay have come to rest, at most *wait* seconds, and say how they did."""

    def list_dlq_events(self, query: str = "", *, cursor: str | None = None, limit: int = 50) -> DlqEvents:
        """Return a page of dead letters, newest first: those that match, or all of them."""

    def get_dlq_event_detail(self, event_id: str) -> DlqEventDetail:
        """Return all of one letter, its payload, tries and failure history included; raise LetterNotFound."""

    def replay_dlq_event(
        self, event_id: str, new_generation: int | None = None, replayed_by: str = "", reason: str = ""
    ) -> Done:
        """Give one dead letter another cycle; raise LetterNotFound, or MoveRefused if it is not failed."""

    def subscriptions(self) -> list[Subscription]:
        """Return the subscriptions: which handler gets its own letter of which event."""

    def subscribe(self, event: str, handler: str, *, queue: str = "default") -> bool:
        """Let every event of kind *event* give a letter of kind *handler* in *queue*; False if it does already."""

    def unsubscribe(self, event: str, handler: str) -> bool:
        """Make no more letters of kind *handler* of such events; False if none were made."""

    def queues(self) -> list[QueueView]:
        """Return every queue, by name."""

    def pause(self, queue: str, *, reason: str = "") -> None:
        """Let no worker begin letters of *queue* until it is resumed."""

    def resume(self, queue: str, *, reason: str = "") -> None:
        """Let workers begin letters of *queue* again."""


class SyncRedrive(Protocol):
    """`Redrive` for code that cannot await."""

    settings: Settings

    def handler(self, kind: str, **options: Unpack[Options]) -> Callable[[F], F]:
        """Register the decorated function as the handler of *kind*; see `Options` for what it may say."""

    def add_handler(self, kind: str, function: Callable[..., Any], **options: Unpack[Options]) -> Handler:
        """
        Register *function* as the handler of *kind*; raise HandlerError if that is impossible.

        A kind that ends in `.*`, such as `kafka.*`, stands for all kinds that begin with `kafka.` and have no handler
        of their own.
        """

    def handler_defaults(self, name: str, **options: Unpack[Options]) -> None:
        """
        Give *options* to the handlers of *name* and of kinds below it (`stripe`, `stripe.invoice.paid`).

        A handler keeps each option that it was registered with. Handlers that are registered already get them, too.
        """

    def on_open(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """Await *prepare* each time after the store was opened, before a worker claims letters; sources use it."""

    def publisher(self, kind: str, publisher: Publisher, **options: Unpack[Options]) -> Handler:
        """
        Let *publisher* send the letters of *kind* to another system: an event to a broker, a dead letter back to Kafka.

        A letter is delivered once the other side has confirmed it. What the publisher raises is a failed attempt;
        an error of category validation, permission or permanent makes the letter a dead letter at once.
        """

    def relay(self, kind: str, relay: Publisher, **options: Unpack[Options]) -> Handler:
        """Do what `publisher` does, under the name that it had before; it goes with the next version."""

    def send_home(self, scheme: str, sender: Publisher, **options: Unpack[Options]) -> Handler:
        """
        Register *sender* for the kinds *scheme* and `scheme.*`, in a queue of that name.

        So `send_home("kafka", …)` sends collected letters of every topic back: those of `orders` have the kind
        `kafka.orders`. Its errors are judged by the rules of a handler, not by those of `publisher`.
        """

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

    def breaker(self, name: str, **rules: Unpack[BreakerOptions]) -> None:
        """Declare when the breaker of dependency *name* opens and how it heals; see `BreakerRules`."""

    def backoff(self, name: str, function: Callable[[int], float]) -> None:
        """
        Register *function* as the backoff *name*; letters carry the name: `policy="custom:name=…"`.

        It takes the number of the try that failed, counted from 1, and returns seconds. Raise PolicyError unless what
        it returns is finite, not negative and bounded.
        """

    @property
    def backoffs(self) -> Backoffs:
        """The backoff functions that are registered, by name."""

    def unknown_backoffs(self) -> list[str]:
        """Return a sentence for each handler whose policy names a backoff function that is not registered."""

    def subscribe(self, event: str, *handlers: str) -> None:
        """Let each of *handlers*, which are kinds, have a letter of its own of every event of kind *event*."""

    def listen(self, listener: Callable[[Fact], None]) -> None:
        """Call *listener* with every fact; what it raises never stops a letter."""

    def draft(self, kind: str, payload: Any, **options: Unpack[DraftOptions]) -> Draft:
        """Return a letter to be, for `enqueue_many`; takes what `enqueue` takes."""

    def enqueue(self, kind: str, payload: Any, **options: Unpack[DraftOptions]) -> Receipt:
        """
        Keep a letter; it is durable once this returns.

        `DraftOptions` lists the options. The receipt has the `id` and whether it was a `duplicate`:
        a letter with the same idempotency key, queue and kind is kept already.
        Raise QueueFull, DraftError, LetterNotFound (an unknown `after`) or StoreUnavailable.
        """

    def enqueue_many(self, drafts: Iterable[Draft]) -> list[Receipt]:
        """Keep all of *drafts* or none, in one transaction; any iterable of drafts will do."""

    @overload
    def outbox(self, connection: BlockingConnection, *, wake: bool = True) -> Outbox: ...

    @overload
    def outbox(self, connection: AwaitedConnection | AsyncpgConnection, *, wake: bool = True) -> AsyncOutbox: ...

    @overload
    def once(
        self, letter: Letter, connection: BlockingConnection, *, handler: str | None = None
    ) -> contextlib.AbstractContextManager[bool]: ...

    @overload
    def once(
        self, letter: Letter, connection: AwaitedConnection | AsyncpgConnection, *, handler: str | None = None
    ) -> contextlib.AbstractAsyncContextManager[bool]: ...

    def run(
        self, *, until_idle: bool = False, queues: Sequence[str] = ..., signals: bool = True, watchdog: bool = False
    ) -> bool:
        """
        Work on letters until stopped; with *until_idle*, until nothing is left to do, now or later (True, then).

        SIGTERM and SIGINT finish what runs and end; a second one stops now and gives the
        attempts back. *watchdog* ends the process if its event loop is blocked for long.
        Raise WorkerExhausted once too many threads hang in handlers that ran out of time.
        """

    def stop(self) -> None:
        """Let each `run` finish what runs and end; call again to stop them now. Any thread may call it."""

    def open(self) -> None:
        """Open the store and make the declared queues known; done by itself at first use."""

    def close(self) -> None:
        """Close the store; what was accepted stays."""

    @property
    def desk(self) -> SyncDesk:
        """What an operator can do: list, group, explain, replay, archive, edit."""
