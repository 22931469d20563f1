"""
The desk as one object.

Owns the author's name and who is told: each method is one call of the verb's own file, and
whatever changed something is announced after the store said yes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.facts import Edited as EditedFact
from redrive.core.facts import QueuePaused, QueueResumed
from redrive.core.policy import RetryPolicy
from redrive.desk import (
    archive,
    audit,
    dlq,
    edit,
    explain,
    group,
    inspect,
    outcome,
    plan,
    queues,
    replay,
    stats,
    subscriptions,
)  # fmt: skip
from redrive.desk.telling import fact_of
from redrive.stores.contract import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.facts import Fact
    from redrive.core.letter import Letter
    from redrive.core.plan import Plan
    from redrive.desk.act import Done
    from redrive.desk.audit import AuditLine
    from redrive.desk.dlq import DlqEventDetail, DlqEvents
    from redrive.desk.edit import Edited
    from redrive.desk.explain import Explanation, WhatIf
    from redrive.desk.group import GroupView
    from redrive.desk.outcome import PlanOutcome
    from redrive.desk.plan import Preview
    from redrive.desk.queues import QueueView
    from redrive.desk.stats import Stats
    from redrive.stores.contract import Page, Store


def _nobody(fact: Fact) -> None:
    """Hear a fact and forget it."""


class Desk:
    """
    Everything an operator can do, on one store, in the name of *by*.

    Verbs that act take ids, all or none, or a `query`; an empty query is refused.
    *announce* is told every fact.
    """

    def __init__(self, store: Store, *, by: str = "desk", announce: Callable[[Fact], object] = _nobody) -> None:
        self.store, self.by, self._announce = store, by, announce

    # ------------------------------------------------------------------ looking

    async def show(self, letter_id: str) -> Letter:
        """Return the letter, by its id or the end of it; raise LetterNotFound or AmbiguousId."""
        return await inspect.show(self.store, letter_id)

    async def ls(self, query: str = "", *, cursor: str | None = None, limit: int = 50, payloads: bool = True) -> Page:
        """Return a page of letters that match, newest first; without *payloads* theirs are empty."""
        return await inspect.ls(self.store, query, cursor=cursor, limit=limit, payloads=payloads)

    async def groups(self, query: str = "", *, limit: int = 50) -> list[GroupView]:
        """Return the failed letters that match in groups, biggest first, each with a verdict."""
        return (await group.groups(self.store, query, limit=limit)).groups

    async def stats(self, *, weeks: int = stats.WEEKS) -> Stats:
        """Return the books and their breakdowns, and what failed in each of the last *weeks*."""
        return await stats.stats(self.store, weeks=weeks)

    async def explain(self, letter_id: str) -> Explanation:
        """Say why the letter stands where it stands."""
        return await explain.explained(self.store, letter_id)

    async def what_if(self, letter_id: str, policy: RetryPolicy | str) -> WhatIf:
        """Return the schedule that another policy would have given to the letter."""
        wanted = RetryPolicy.parse(policy) if isinstance(policy, str) else policy
        return explain.what_if(await self.show(letter_id), wanted)

    async def audit(self, *, limit: int = 100) -> list[AuditLine]:
        """Return the newest acts, newest first."""
        return (await audit.audit(self.store, limit=limit)).entries

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
        """Give failed letters another cycle."""
        done = await replay.replay(
            self.store, ids, query=query, by=self.by, reason=reason, limit=limit, rate=rate, generation=generation
        )
        return self._tell(done)

    async def archive(self, *ids: str, query: str = "", reason: str = "") -> Done:
        """Decide that failed letters need no handling."""
        return self._tell(await archive.archive(self.store, ids, query=query, by=self.by, reason=reason))

    async def cancel(self, *ids: str, query: str = "", reason: str = "") -> Done:
        """Archive pending letters before they run."""
        return self._tell(await archive.cancel(self.store, ids, query=query, by=self.by, reason=reason))

    async def restore(self, *ids: str, query: str = "", reason: str = "") -> Done:
        """Bring archived letters back."""
        return self._tell(await archive.restore(self.store, ids, query=query, by=self.by, reason=reason))

    async def purge(self, *ids: str, query: str = "", reason: str = "") -> Done:
        """Remove archived letters for good."""
        return self._tell(await archive.purge(self.store, ids, query=query, by=self.by, reason=reason))

    async def edit(self, letter_id: str, payload: bytes, *, version: int, reason: str = "") -> Edited:
        """Replace the payload of a letter that was read as *version*."""
        done = await edit.edit(self.store, letter_id, payload, version=version, by=self.by, reason=reason)
        self._announce(EditedFact(id=done.id, version=done.payload_version, by=self.by, reason=reason))
        return done

    def _tell(self, done: Done) -> Done:
        if done.acted:
            self._announce(fact_of(done.verb, done.acted, by=done.by, reason=done.reason, plan=done.plan))
        return done

    # ------------------------------------------------------------------ plans

    async def preview(self, verb: str, query: str) -> Preview:
        """Count and sample what a plan would act on; nothing is written."""
        return await plan.preview(self.store, verb, query)

    async def start(self, verb: str, query: str, *, reason: str = "", limit: int | None = None) -> Plan:
        """Keep a plan; nothing is acted on yet."""
        return await plan.start(self.store, verb, query, by=self.by, reason=reason, limit=limit)

    async def carry_out(
        self, plan_id: str, *, rate: float | None = None, progress: Callable[[Plan], object] | None = None
    ) -> Plan:
        """Carry out a plan, or go on where an earlier run stopped."""
        before = await self.store.plan(plan_id)
        after = await plan.carry_out(self.store, plan_id, rate=rate, progress=progress)
        if after.acted > before.acted:
            count = after.acted - before.acted
            self._announce(fact_of(after.verb, count, by=after.by, reason=after.reason, plan=after.id))
        return after

    async def outcome(self, plan_id: str, *, wait: float = outcome.WAIT) -> PlanOutcome:
        """Wait until the letters of a replay have come to rest, at most *wait* seconds, and say how they did."""
        return await outcome.outcome(self.store, plan_id, wait=wait)

    # ------------------------------------------------------------------ the words of an outbox

    async def list_dlq_events(self, query: str = "", *, cursor: str | None = None, limit: int = 50) -> DlqEvents:
        """Return a page of dead letters, newest first: those that match, or all of them."""
        return await dlq.list_dlq_events(self.store, query, cursor=cursor, limit=limit)

    async def get_dlq_event_detail(self, event_id: str) -> DlqEventDetail:
        """Return all of one letter, its payload, tries and failure history included; raise LetterNotFound."""
        return await dlq.get_dlq_event_detail(self.store, event_id)

    async def replay_dlq_event(
        self, event_id: str, new_generation: int | None = None, replayed_by: str = "", reason: str = ""
    ) -> Done:
        """Give one dead letter another cycle; raise LetterNotFound, or MoveRefused if it is not failed."""
        by = replayed_by or self.by
        return self._tell(await dlq.replay_dlq_event(self.store, event_id, new_generation, by, reason))

    # ------------------------------------------------------------------ events

    async def subscriptions(self) -> list[Subscription]:
        """Return who gets a letter of its own of which events."""
        return (await subscriptions.subscriptions(self.store)).subscriptions

    async def subscribe(self, event: str, handler: str, *, queue: str = "default") -> bool:
        """Let every event of kind *event* give a letter of kind *handler* in *queue*; False if it does already."""
        wanted = Subscription(event=event, handler=handler, queue=queue)
        return await subscriptions.subscribe(self.store, wanted, by=self.by)

    async def unsubscribe(self, event: str, handler: str) -> bool:
        """Make no more letters of kind *handler* of such events; False if none were made."""
        return await subscriptions.unsubscribe(self.store, event, handler, by=self.by)

    # ------------------------------------------------------------------ queues

    async def queues(self) -> list[QueueView]:
        """Return every queue, by name."""
        return (await queues.queues(self.store)).queues

    async def pause(self, queue: str, *, reason: str = "") -> None:
        """Let no worker begin letters of *queue* until it is resumed."""
        await queues.pause(self.store, queue, by=self.by, reason=reason)
        self._announce(QueuePaused(queue=queue, by=self.by, reason=reason))

    async def resume(self, queue: str, *, reason: str = "") -> None:
        """Let workers begin letters of *queue* again."""
        await queues.resume(self.store, queue, by=self.by, reason=reason)
        self._announce(QueueResumed(queue=queue, by=self.by, reason=reason))
