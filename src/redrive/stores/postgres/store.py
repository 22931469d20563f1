"""
The PostgreSQL store's face: the contract, one call thick over the server.

Owns opening and closing, and which module carries out which operation. Every rule of what a call
does lives in the module named after it (putting, exchanging, claiming, settling, acting, retention,
shared_state, finding) and in `functions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from redrive.failpoints import hit
from redrive.stores.contract import Backlog, Claim, Exchanged, Features
from redrive.stores.postgres import broadcasting, claiming, putting, shared_state
from redrive.stores.postgres.desk import acting, again, finding, lensing, planning
from redrive.stores.postgres.desk.copying import PostgresCopies
from redrive.stores.postgres.exchanging import Exchanger, settle_counted
from redrive.stores.postgres.retention import retain
from redrive.stores.postgres.server import answers
from redrive.stores.postgres.server.calls import Calls
from redrive.stores.postgres.server.connections import Server
from redrive.stores.postgres.server.lease_clock import Ticker
from redrive.stores.postgres.server.listening import Wire
from redrive.stores.postgres.sql import migrating
from redrive.stores.postgres.sql.statements import statements
from redrive.stores.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redrive.core.breaker import Breaker, BreakerRules
    from redrive.core.budget import BudgetRules
    from redrive.core.letter import Draft, Letter
    from redrive.core.moves import Move
    from redrive.core.plan import AuditEntry, Plan, PlanState, Step
    from redrive.core.query import Lens, Query
    from redrive.core.waiting import Standing
    from redrive.stores.clock import StoreClock
    from redrive.stores.contract import (
        Group,
        Histories,
        LensGroup,
        Page,
        QueueSpec,
        QueueState,
        Receipt,
        Retention,
        Spread,
        Subscription,
        Tally,
        Want,
        WorkerBeat,
    )
    from redrive.stores.postgres.server.transaction import Transaction


class PostgresStore:
    """Letters in one schema of a PostgreSQL database; any number of processes and hosts may use it."""

    # search: looked up when it is opened
    features = Features(
        durable=True,
        shared=True,
        hosts=True,
        one_loop=True,
        search=False,  # until the server says that it has the index
        broadcast=True,
        migrations=True,
        transactions=True,
    )

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "redrive",
        pooled: bool = False,
        listen: bool | str = True,
        clock: StoreClock | None = None,
        application: str = "redrive",
        create: bool = True,
    ) -> None:
        """
        *listen* may be a DSN past the pooler: a transaction-mode pooler does not support LISTEN.

        *application* is the name of its connections, for administrators who look at pg_stat_activity.
        *clock* is for tests: without one the server's own clock is the only one.
        """
        self.dsn, self.schema, self.pooled, self._create = dsn, schema, pooled, create
        sql = statements(schema)
        self._server = Server(dsn, pooled=pooled, application=application)
        self._calls = Calls(self._server, sql, clock)
        self._ticker = Ticker(manual=clock is not None)
        self._wakeup = Wakeup()
        past = Server(listen, application=application) if isinstance(listen, str) else None
        direct = past or (self._server if listen and not pooled else None)
        self._wire = Wire(self._server, sql["notify"], self._wakeup.send, direct=direct)
        self._exchanger = Exchanger(self._calls, hints=clock is None)

    # ------------------------------------------------------------------ opening and closing

    async def open(self) -> None:
        """Connect, make the schema if there is none (refuse, unless it may `create` it), begin to listen."""
        if not self._server.closed:
            return
        await self._server.open()
        try:
            await self._server.ask(lambda each, _: migrating.ensure(each, self.schema, create=self._create))
            self.features = msgspec.structs.replace(self.features, search=await self._calls.read(finding.searchable))
        except BaseException:  # cancelled too: a store that did not open keeps no connection
            await self._server.close()
            raise
        self._wire.open()

    async def close(self) -> None:
        """Let go of everything; what was accepted is the server's already."""
        await self._calls.finish()
        await self._wire.close()
        await self._server.close()

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; workers of the version before keep running. Return notes for the operator."""

        async def work(connection: Any, _again: bool) -> list[str]:  # noqa: FBT001 - every work is called like this
            await migrating.migrate(connection, self.schema)
            return [] if (await self._calls.fetch(connection, "searchable"))[0][0] else [migrating.NO_TRIGRAMS]

        return await self._server.ask_once(work)

    async def script(self) -> str:
        """Return what `migrate` would do, as SQL; nothing if the schema is up to date."""
        found = await self._server.ask_once(lambda each, _: migrating.version(each, self.schema))
        return migrating.script(self.schema, found)

    # ------------------------------------------------------------------ letters in, work

    async def put(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Keep *drafts*, all or none; durable once it returns."""
        hit("put.before")
        if any(draft.again for draft in drafts):
            receipts = await self._calls.once(answers.RECEIPTS, again.put, drafts)
        else:
            receipts = await putting.put(self._calls, drafts)
        hit("put.after")
        self._calls.counted()
        self._wire.tell()
        return receipts

    async def take(self, letter_id: str, *, lease: float, worker: str, waiting: bool = False) -> Claim | None:
        """Claim one pending letter now, due or not."""
        return await self._calls.once(answers.CLAIM, again.take, letter_id, lease, worker, waiting)

    async def stranded(self, limit: int, *, queue: str | None = None) -> list[str]:
        """Let letters go on whose `after` will not come; return those that are to fail."""
        return await self._calls.write(again.stranded, limit, queue)

    async def claim(self, wants: Sequence[Want], *, lease: float, worker: str) -> list[Claim]:
        """Claim due letters."""
        return (await self.exchange((), wants, lease=lease, worker=worker)).claims

    async def settle(self, settlements: Sequence[tuple[Claim, Move]]) -> tuple[bool, ...]:
        """
        Carry out each move whose claim still holds.

        The caller may ask again after a lost answer (StoreUnavailable): a settlement that was carried out is accepted
        as long as no other call has moved the letter since.
        """
        hit("settle.before")
        accepted = await self._exchanger.settle(settlements)
        hit("settle.after")
        return accepted

    async def settle_counted(self, claim: Claim, move: Move, name: str, amounts: Mapping[str, int]) -> bool:
        """Carry out *move* and add *amounts* to the counters *name*, or neither."""
        hit("settle.before")
        accepted = await self._calls.once(answers.YES_OR_NO, settle_counted, claim, move, name, amounts)
        hit("settle.after")
        self._calls.counted()
        return accepted

    async def exchange(
        self, settlements: Sequence[tuple[Claim, Move]], wants: Sequence[Want], *, lease: float, worker: str
    ) -> Exchanged:
        """Settle and claim in one round trip: in one transaction, or in two at once when there is much to do."""
        hit("exchange.before")
        exchanged = await self._exchanger.exchange(settlements, wants, lease, worker)
        hit("exchange.after")
        return exchanged

    async def extend(self, beat: WorkerBeat, claims: Sequence[Claim], *, lease: float) -> list[Claim]:
        """Record a sign of life and renew *claims*, ahead of everything that waits."""
        hit("extend.before")
        lost = await claiming.extend(self._calls, self._ticker, beat, claims, lease)
        hit("extend.after")
        return lost

    async def expired(self, limit: int) -> list[Claim]:
        """Return claims whose lease ended."""
        ended = await claiming.some_ended(self._calls, self._ticker)
        return await self._calls.read(claiming.expired, limit) if ended else []

    async def leave(self, worker: str) -> None:
        """Forget *worker*, which has ended."""
        await self._calls.write(shared_state.leave, worker)

    async def backlog(self, wants: Sequence[Want]) -> Backlog:
        """Return what is left of these queues and kinds."""
        return await self._calls.write(claiming.backlog, wants)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the wait itself is the operation
        """Return early when letters may have become due through a put or an act of any process."""
        return await self._wakeup.wait(timeout)

    # ------------------------------------------------------------------ shared state

    async def declare(self, specs: Sequence[QueueSpec]) -> None:
        """Share the queues' settings with all processes."""
        await self._calls.write(shared_state.declare, specs)

    async def queues(self) -> list[QueueState]:
        """Return every queue that was declared or has letters."""
        return await self._calls.read(shared_state.queues)

    async def pause(self, queue: str, *, paused: bool, by: str, reason: str) -> None:
        """Pause or resume *queue*."""
        await self._calls.once(answers.NOTHING, shared_state.pause, queue, paused, by, reason)
        self._wire.tell()

    async def workers(self) -> list[WorkerBeat]:
        """Return the workers seen lately."""
        return await self._calls.read(shared_state.workers)

    async def breakers(self) -> dict[str, Breaker]:
        """Return every breaker."""
        return await self._calls.read(shared_state.breakers)

    async def report(self, name: str, rules: BreakerRules, *, successes: int, failures: int) -> Breaker:
        """Add outcomes to a breaker."""
        return await self._calls.write(shared_state.report, name, rules, successes, failures)

    async def probe(self, name: str, rules: BreakerRules, limit: int) -> int:
        """Return how many trial letters a breaker lets through."""
        return await self._calls.write(shared_state.probe, name, rules, limit)

    async def spend(self, queue: str, rules: BudgetRules, *, firsts: int, retries: int) -> float:
        """Draw on a queue's retry budget."""
        return await self._calls.write(shared_state.spend, queue, rules, firsts, retries)

    async def add_up(self, name: str, amounts: Mapping[str, int]) -> dict[str, int]:
        """Add *amounts* to the counters *name* and return all of them."""
        if not amounts:
            return await self._calls.read(shared_state.sums, name)
        return await self._calls.once(answers.COUNTS, shared_state.add_up, name, amounts)

    async def handled(self, handler: str, key: str) -> bool:
        """Note that *handler* handled *key*."""
        return await self._calls.once(answers.YES_OR_NO, shared_state.handled, handler, key)

    # ------------------------------------------------------------------ events with several handlers

    async def broadcast(self, limit: int = 500) -> list[Spread] | None:
        """Give due events to their subscribers; None if there are none at all."""
        spread = await self._calls.write(broadcasting.broadcast, limit)
        if spread:
            self._calls.counted()
            self._wire.tell()
        return spread

    async def subscriptions(self) -> list[Subscription]:
        """Return every subscription."""
        return await self._calls.read(broadcasting.subscriptions)

    async def subscribe(self, subscription: Subscription, *, by: str) -> bool:
        """Keep a subscription."""
        fresh = await self._calls.once(answers.YES_OR_NO, broadcasting.subscribe, subscription, by)
        self._wire.tell()
        return fresh

    async def unsubscribe(self, event: str, handler: str, *, by: str) -> bool:
        """Remove a subscription."""
        return await self._calls.once(answers.YES_OR_NO, broadcasting.unsubscribe, event, handler, by)

    # ------------------------------------------------------------------ the operator's side

    async def get(self, letter_id: str) -> Letter | None:
        """Return the letter, or None."""
        return await self._calls.read(finding.get, letter_id)

    async def standing(self, letter_id: str) -> Standing | None:
        """Return what a pending letter waits for."""
        return await self._calls.read(finding.standing, letter_id)

    async def dependents(self, letter_ids: Sequence[str]) -> list[tuple[str, str]]:
        """Return who waits for whom."""
        return await self._calls.read(finding.dependents, list(dict.fromkeys(letter_ids)))

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50, payloads: bool = True) -> Page:
        """Return a page, newest first."""
        return await self._calls.read(finding.find, query, cursor, limit, payloads)

    async def count(self, query: Query, *, at_most: int = 10_000) -> int:
        """Count matching letters, but not beyond *at_most*."""
        return await self._calls.read(finding.count, query, at_most)

    async def groups(self, query: Query, *, limit: int = 50) -> list[Group]:
        """Group the failed letters that match."""
        return await self._calls.read(finding.groups, query, limit)

    async def groups_by(self, lens: Lens, query: Query, *, limit: int = 50) -> list[LensGroup]:
        """Group the failed letters that match by what they have under *lens*."""
        return await self._calls.read(lensing.groups_by, lens, query, limit)

    async def tallies(self, status: str | None = None) -> list[Tally]:
        """Return the maintained counts."""
        return await self._calls.read(finding.tallies, status)

    async def oldest_failed(self) -> Letter | None:
        """Return the dead letter that has waited longest."""
        return await self._calls.read(finding.oldest_failed)

    async def histories(self) -> Histories:
        """Return how often letters were replayed."""
        return await self._calls.read(finding.histories)

    async def act(
        self,
        verb: str,
        letter_ids: Sequence[str],
        *,
        by: str,
        reason: str,
        generation: int | None = None,
        adds: tuple[str, Mapping[str, int]] | None = None,
    ) -> list[Letter]:
        """Act on these letters, all or none."""
        terms = acting.ActTerms(by, reason, generation=generation)
        letters = await self._calls.once(answers.LETTERS, _act_counted, verb, letter_ids, terms, adds)
        hit("act.after")
        self._wire.tell()
        return letters

    async def start_plan(self, plan: Plan) -> Plan:
        """Keep *plan*; its cut-off is now."""
        return await self._calls.once(answers.PLAN, planning.start_plan, plan)

    async def step(self, plan_id: str, *, limit: int, worker: str = "", lease: float = 0.0) -> Step:
        """Act on the next page of a plan."""
        hit("step.before")
        done = await self._calls.once(answers.STEP, planning.step, plan_id, limit, worker, lease)
        hit("step.after")
        self._calls.counted()
        self._wire.tell()
        return done

    async def plan(self, plan_id: str) -> Plan:
        """Return a plan."""
        return await self._calls.read(planning.read_plan, plan_id)

    async def plans(self, state: PlanState | None = None, *, limit: int = 100) -> list[Plan]:
        """Return plans, newest first."""
        return await self._calls.read(planning.read_plans, state, limit)

    async def change_plan(self, plan_id: str, verb: str, *, by: str, reason: str, rate: float | None = None) -> Plan:
        """Pause, resume or halt a plan."""
        return await self._calls.once(answers.PLAN, planning.change_plan, plan_id, verb, by, reason, rate)

    async def edit(
        self, letter_id: str, payload: bytes, content_type: str, *, version: int, by: str, reason: str
    ) -> Letter:
        """Replace a payload, compare-and-set on its version."""
        return await self._calls.once(
            answers.LETTER, acting.edit, letter_id, (payload, content_type), version, by, reason
        )

    async def record(self, by: str, verb: str, target: str, count: int, reason: str) -> None:
        """Write an audit entry."""
        await self._calls.once(answers.NOTHING, shared_state.write_down, by, verb, target, count, reason)

    async def audit(self, *, limit: int = 100) -> list[AuditEntry]:
        """Return the newest audit entries."""
        return await self._calls.read(shared_state.audit, limit)

    async def retain(self, retention: Retention, *, limit: int = 5_000) -> int:
        """Remove some letters past their retention."""
        removed = await self._calls.write(retain, retention, limit)
        self._calls.counted()
        return removed

    @property
    def copies(self) -> PostgresCopies:
        """The way to copy letters to other stores, and from them."""
        return PostgresCopies(self._calls, self._wire.tell)


async def _act_counted(
    transaction: Transaction,
    verb: str,
    letter_ids: Sequence[str],
    terms: acting.ActTerms,
    adds: tuple[str, Mapping[str, int]] | None,
) -> list[Letter]:
    letters = await acting.act(transaction, verb, letter_ids, terms)
    hit("act.before_count")
    if adds is not None:
        await shared_state.add_up(transaction, *adds)
    return letters
