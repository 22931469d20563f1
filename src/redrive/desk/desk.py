"""
The desk as one object: the one door for the command line, the application and every other surface.

Owns the author's name and the announcing of facts. Each method is one call of the verb's own file; if it changed
something, the desk announces the fact after the store said yes. Knows no terminal and no listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from redrive.core.facts import Edited, QueuePaused, QueueResumed, fact_of_act
from redrive.core.plan import PlanState
from redrive.core.policy import RetryPolicy
from redrive.core.query import parse
from redrive.desk import dlq
from redrive.desk.act import acts, edit, outcome, queues, subscriptions
from redrive.desk.act import plan as plans
from redrive.desk.look import audit, explain, group, inspect, lens, stats, views
from redrive.errors import PolicyError
from redrive.stores.contract import Subscription

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.core.facts import Fact
    from redrive.core.letter import Letter
    from redrive.core.plan import Plan, Step
    from redrive.core.query import Lens
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
    from redrive.stores.contract import Page, Store

    OpenStore = Callable[[], Awaitable[Store]]


def _no_listener(fact: Fact) -> None:
    """Take a fact that no listener wants."""


class Desk:
    """
    Everything an operator can do, on one store, in the name of *by*.

    *store* is open, or a function that opens it and returns it. Verbs that act take ids, all or none, or a `query`;
    an empty query is refused. The desk calls *announce* with every fact. *offer* is for how many seconds it leaves a
    plan to workers before it carries the plan out itself.
    """

    def __init__(
        self,
        store: Store | OpenStore,
        *,
        by: str = "desk",
        announce: Callable[[Fact], object] = _no_listener,
        offer: float = plans.OFFER,
    ) -> None:
        self.by, self._given, self._announce, self._offer = by, store, announce, offer

    async def _store(self) -> Store:
        return await self._given() if callable(self._given) else self._given

    # ------------------------------------------------------------------ looking

    async def show(self, letter_id: str) -> Letter:
        """Return the letter, by its id or the end of it; raise LetterNotFound or AmbiguousId."""
        return await inspect.show(await self._store(), letter_id)

    async def sheet(self, letter_id: str) -> LetterSheet:
        """Return the letter as its documented JSON: everything that is kept of it; raise as `show` does."""
        return views.sheet(await self.show(letter_id))

    async def ls(self, query: str = "", *, cursor: str | None = None, limit: int = 50, payloads: bool = True) -> Page:
        """Return a page of letters that match, newest first; without *payloads* theirs are empty."""
        return await inspect.ls(await self._store(), query, cursor=cursor, limit=limit, payloads=payloads)

    async def listing(self, query: str = "", *, cursor: str | None = None, limit: int = 50) -> Listing:
        """Return a page of letters that match, newest first, as its documented JSON: a row each, without payloads."""
        return views.listing(await self.ls(query, cursor=cursor, limit=limit, payloads=False))

    async def count(self, query: str = "", *, at_most: int = plans.COUNTED) -> int:
        """Count the letters that match, but not beyond *at_most*."""
        return await (await self._store()).count(parse(query), at_most=at_most)

    @overload
    async def groups(
        self, query: str = "", *, by: Literal["fingerprint"] = "fingerprint", limit: int = 50
    ) -> list[GroupView]: ...
    @overload
    async def groups(self, query: str = "", *, by: Lens, limit: int = 50) -> list[LensView]: ...
    async def groups(
        self, query: str = "", *, by: str = "fingerprint", limit: int = 50
    ) -> list[GroupView] | list[LensView]:
        """
        Return the failed letters that match in groups, biggest first: by fingerprint with a verdict, or by a lens.

        A lens is origin, kind, category, error_type, release or tenant. Such a group has the query that finds its
        letters, and no verdict.
        """
        store = await self._store()
        if by != "fingerprint":
            return (await lens.groups_by(store, by, query, limit=limit)).groups
        return (await group.groups(store, query, limit=limit)).groups

    async def stats(self, *, weeks: int = stats.WEEKS) -> Stats:
        """Return the books and their breakdowns, and what failed in each of the last *weeks*."""
        return await stats.stats(await self._store(), weeks=weeks)

    async def explain(self, letter_id: str) -> Explanation:
        """Say why the letter stands where it stands."""
        return await explain.explained(await self._store(), letter_id)

    async def what_if(self, letter_id: str, policy: RetryPolicy | str) -> WhatIf:
        """Return the schedule that another policy would have given to the letter."""
        wanted = RetryPolicy.parse(policy) if isinstance(policy, str) else policy
        if wanted.name and wanted.function is None:
            raise PolicyError(
                f"cannot say what {wanted.text!r} would have done: its function is known to workers alone; give "
                "RetryPolicy.custom(function)"
            )
        return explain.what_if(await self.show(letter_id), wanted)

    async def audit(self, *, limit: int = 100) -> list[AuditLine]:
        """Return the newest acts, newest first."""
        return (await audit.audit(await self._store(), limit=limit)).entries

    # ------------------------------------------------------------------ acting

    async def replay(
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
        return await self.act("replay", *ids, query=query, reason=reason, limit=limit, rate=rate, generation=generation)

    async def archive(self, *ids: str, query: str = "", reason: str = "") -> Done:
        """Decide that failed letters need no handling."""
        return await self.act("archive", *ids, query=query, reason=reason)

    async def cancel(self, *ids: str, query: str = "", reason: str = "") -> Done:
        """Archive pending letters before they run."""
        return await self.act("cancel", *ids, query=query, reason=reason)

    async def restore(self, *ids: str, query: str = "", reason: str = "") -> Done:
        """Bring archived letters back to where they were archived from."""
        return await self.act("restore", *ids, query=query, reason=reason)

    async def purge(self, *ids: str, query: str = "", reason: str = "") -> Done:
        """Remove archived letters; this cannot be undone. The books keep their number."""
        return await self.act("purge", *ids, query=query, reason=reason)

    async def act(
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
        acts.check_named(verb, ids, query)
        if query.strip():
            made = await self.start(
                verb, query, reason=reason, limit=limit, rate=rate, generation=generation, paused=False
            )
            return acts.done(await self.carry_out(made.id))
        store = await self._store()
        return self._tell(await acts.by_id(store, verb, ids, by=self.by, reason=reason, generation=generation))

    async def edit(
        self, letter_id: str, payload: bytes, *, version: int, reason: str = "", content_type: str | None = None
    ) -> EditedLetter:
        """Replace the payload of a letter that was read as *version*; raise EditConflict if it changed since."""
        store = await self._store()
        done = await edit.edit(
            store, letter_id, payload, version=version, by=self.by, reason=reason, content_type=content_type
        )
        self._announce(Edited(id=done.id, version=done.payload_version, by=self.by, reason=reason))
        return done

    def _tell(self, done: Done) -> Done:
        if done.acted:
            self._announce(fact_of_act(done.verb, done.acted, by=done.by, reason=done.reason, plan=done.plan))
        return done

    # ------------------------------------------------------------------ plans

    async def preview(self, verb: str, query: str, *, at_most: int = plans.COUNTED) -> Preview:
        """Count (up to *at_most*) and sample what a plan would act on; nothing is written."""
        return await plans.preview(await self._store(), verb, query, at_most=at_most)

    async def start(
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
        return await plans.start(
            await self._store(),
            verb,
            query,
            by=self.by,
            reason=reason,
            limit=limit,
            rate=rate,
            generation=generation,
            paused=paused,
        )

    async def plan(self, plan_id: str) -> Plan:
        """Return a plan; raise PlanNotFound."""
        return await (await self._store()).plan(plan_id)

    async def plans(self, state: str | None = None, *, limit: int = 50) -> list[PlanView]:
        """Return plans, newest first; with *state* those that are running, paused, halted or done."""
        wanted = None if state is None else PlanState(state)
        return [plans.view(plan) for plan in await (await self._store()).plans(wanted, limit=limit)]

    async def carry_out(
        self, plan_id: str, *, rate: float | None = None, progress: Callable[[Plan], object] | None = None
    ) -> Plan:
        """
        Have a plan carried out, or go on where it stopped; return it once it is done, paused or halted.

        A worker carries it out; if none takes it in time, this process does. *rate* replaces the plan's.
        """
        return await plans.carry_out(
            await self._store(),
            plan_id,
            by=self.by,
            rate=rate,
            offer=self._offer,
            announce=self._tell_of_page,
            progress=progress,
        )

    async def pause_plan(self, plan_id: str, *, reason: str = "") -> PlanView:
        """Stop a plan after the page that it is at; `resume_plan` lets it go on."""
        return await self._change_plan(plan_id, "pause", reason=reason)

    async def resume_plan(self, plan_id: str, *, reason: str = "", rate: float | None = None) -> PlanView:
        """Let workers go on with a plan; *rate* replaces the plan's."""
        plans.check_rate(rate)
        return await self._change_plan(plan_id, "resume", reason=reason, rate=rate)

    async def halt_plan(self, plan_id: str, *, reason: str = "") -> PlanView:
        """End a plan after the page that it is at; it cannot be resumed."""
        return await self._change_plan(plan_id, "halt", reason=reason)

    async def _change_plan(self, plan_id: str, verb: str, *, reason: str, rate: float | None = None) -> PlanView:
        store = await self._store()
        return plans.view(await store.change_plan(plan_id, verb, by=self.by, reason=reason, rate=rate))

    def _tell_of_page(self, step: Step) -> None:
        of = step.plan
        self._announce(fact_of_act(of.verb, len(step.acted), by=of.by, reason=of.reason, plan=of.id))

    async def outcome(self, plan_id: str, *, wait: float = outcome.WAIT) -> PlanOutcome:
        """Wait until the letters of a replay have come to rest, at most *wait* seconds, and say how they did."""
        return await outcome.outcome(await self._store(), plan_id, wait=wait)

    # ------------------------------------------------------------------ the words of an outbox

    async def list_dlq_events(self, query: str = "", *, cursor: str | None = None, limit: int = 50) -> DlqEvents:
        """Return a page of dead letters, newest first: those that match, or all of them."""
        return await dlq.list_dlq_events(await self._store(), query, cursor=cursor, limit=limit)

    async def get_dlq_event_detail(self, event_id: str) -> DlqEventDetail:
        """Return all of one letter, its payload, tries and failure history included; raise LetterNotFound."""
        return await dlq.get_dlq_event_detail(await self._store(), event_id)

    async def replay_dlq_event(
        self, event_id: str, new_generation: int | None = None, replayed_by: str = "", reason: str = ""
    ) -> Done:
        """Give one dead letter another cycle; raise LetterNotFound, or MoveRefused if it is not failed."""
        by = replayed_by or self.by
        return self._tell(await dlq.replay_dlq_event(await self._store(), event_id, new_generation, by, reason))

    # ------------------------------------------------------------------ events

    async def subscriptions(self) -> list[Subscription]:
        """Return the subscriptions: which handler gets its own letter of which event."""
        return (await subscriptions.subscriptions(await self._store())).subscriptions

    async def subscribe(self, event: str, handler: str, *, queue: str = "default") -> bool:
        """Let every event of kind *event* give a letter of kind *handler* in *queue*; False if it does already."""
        wanted = Subscription(event=event, handler=handler, queue=queue)
        return await subscriptions.subscribe(await self._store(), wanted, by=self.by)

    async def unsubscribe(self, event: str, handler: str) -> bool:
        """Make no more letters of kind *handler* of such events; False if none were made."""
        return await subscriptions.unsubscribe(await self._store(), event, handler, by=self.by)

    # ------------------------------------------------------------------ queues

    async def queues(self) -> list[QueueView]:
        """Return every queue, by name."""
        return (await queues.queues(await self._store())).queues

    async def pause(self, queue: str, *, reason: str = "") -> None:
        """Let no worker begin letters of *queue* until it is resumed."""
        await queues.pause(await self._store(), queue, by=self.by, reason=reason)
        self._announce(QueuePaused(queue=queue, by=self.by, reason=reason))

    async def resume(self, queue: str, *, reason: str = "") -> None:
        """Let workers begin letters of *queue* again."""
        await queues.resume(await self._store(), queue, by=self.by, reason=reason)
        self._announce(QueueResumed(queue=queue, by=self.by, reason=reason))
