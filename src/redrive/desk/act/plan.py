"""
Act on many letters, safely.

Owns how a plan is made, previewed, watched and carried out. A plan goes page by page, each page one transaction of the
store with its audit entry, and touches each letter at most once. A worker carries it out; if no worker takes it within
a second, the caller does. If that process dies, another goes on where it stopped, once its lease ends.
`core/plan.py` has the rules. Knows no terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import instant
from redrive.core.moves import needed_for
from redrive.core.plan import PAGE, Plan, PlanState, lease_for, page_size, rest_after
from redrive.core.query import Term, parse, require
from redrive.desk.look.views import LetterRow, row
from redrive.errors import QueryError, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.core.plan import Step
    from redrive.core.query import Query
    from redrive.stores.contract import Store

OFFER = 1.0  # seconds in which a worker may take a plan before the caller carries it out
COUNTED = 10_000  # letters that a preview counts unless it is asked for more
_LOOK = 0.05  # seconds between two looks at a plan that another process carries out
_SAMPLE = 5
_KINDS = 500  # letters whose kinds a preview counts


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan would act on now; nothing is written."""

    verb: str
    query: str
    count: int
    at_least: bool  # True if counting stopped at *count*
    kinds: dict[str, int]  # among the newest letters looked at
    sample: list[LetterRow]


async def preview(store: Store, verb: str, query_text: str, *, at_most: int = COUNTED) -> Preview:
    """Count and sample what *verb* would act on; raise QueryError for an empty query."""
    narrowed = _eligible(verb, query_text)
    count = await store.count(narrowed, at_most=at_most)
    page = await store.find(narrowed, limit=_KINDS, payloads=False)
    kinds = Counter(letter.kind for letter in page.letters)
    return Preview(
        verb=verb,
        query=narrowed.text,
        count=count,
        at_least=count >= at_most,
        kinds=dict(kinds.most_common()),
        sample=[row(letter) for letter in page.letters[:_SAMPLE]],
    )


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """A plan: what it does to which letters, in whose name, and how far it is."""

    id: str
    verb: str
    query: str
    by: str
    reason: str
    state: str  # running, paused, halted or done
    acted: int
    skipped: int  # letters that matched, but had moved before the plan could act on them
    limit: int | None  # it acts on at most so many (a canary)
    rate: float | None  # on at most so many a second
    generation: int | None
    holder: str  # the process that carries it out now; empty if none does
    created_at: datetime


class Plans(msgspec.Struct, frozen=True, kw_only=True):
    """Plans, newest first."""

    plans: list[PlanView]


def view(plan: Plan) -> PlanView:
    """Return a plan as its documented JSON."""
    return PlanView(
        id=plan.id,
        verb=plan.verb,
        query=plan.query,
        by=plan.by,
        reason=plan.reason,
        state=str(plan.state),
        acted=plan.acted,
        skipped=plan.skipped,
        limit=plan.limit,
        rate=plan.rate,
        generation=plan.generation,
        holder=plan.holder if plan.held else "",
        created_at=instant(plan.created_us),
    )


async def start(
    store: Store,
    verb: str,
    query_text: str,
    *,
    by: str,
    reason: str = "",
    limit: int | None = None,
    rate: float | None = None,
    generation: int | None = None,
    paused: bool = False,
) -> Plan:
    """
    Keep a plan and return it; no count is needed. Any worker may carry it out from now on, unless it is *paused*.

    The set is fixed now: letters that move later are not part of it. *limit* acts on at most so many (a canary),
    *rate* on at most so many a second. Raise QueryError for an empty query.
    """
    _check_limit(verb, limit)
    check_rate(rate)
    plan = Plan(
        verb=verb,
        query=_eligible(verb, query_text).text,
        by=by,
        reason=reason,
        limit=limit,
        rate=rate,
        generation=generation,
        state=PlanState.PAUSED if paused else PlanState.RUNNING,
    )
    return await store.start_plan(plan)


class Carrier:
    """
    One caller that has a plan carried out: by a worker, or by itself.

    *offer* is for how many seconds it leaves the plan to workers first. *announce* is called with each page that this
    caller acted on itself, *progress* with the plan whenever it was looked at.
    """

    def __init__(
        self,
        store: Store,
        *,
        offer: float = OFFER,
        page: int = PAGE,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        announce: Callable[[Step], object] | None = None,
        progress: Callable[[Plan], object] | None = None,
    ) -> None:
        self._store, self._offer, self._page, self._sleep = store, offer, page, sleep
        self._announce, self._progress = announce, progress
        self._name = f"desk-{secrets.token_hex(6)}"

    async def carry_out(self, plan: Plan) -> Plan:
        """Return *plan* once it is done, paused or halted."""
        try:
            while plan.state is PlanState.RUNNING:
                plan = await (self._watch(plan.id) if await self._is_for_others(plan) else self._act(plan))
                if self._progress is not None:
                    self._progress(plan)
        finally:
            if plan.holder == self._name:
                await self._let_go(plan.id)
        return plan

    async def _is_for_others(self, plan: Plan) -> bool:
        """Say whether another process carries it out, or a worker may still take it."""
        if plan.held:
            return plan.holder != self._name
        if self._offer <= 0 or plan.holder == self._name:
            return False
        return any(worker.alive for worker in await self._store.workers())

    async def _watch(self, plan_id: str) -> Plan:
        await self._sleep(_LOOK)
        plan = await self._store.plan(plan_id)
        self._offer -= _LOOK
        return plan

    async def _act(self, plan: Plan) -> Plan:
        size, lease = page_size(plan.rate, self._page), lease_for(plan.rate, self._page)
        step = await self._store.step(plan.id, limit=size, worker=self._name, lease=lease)
        if step.acted and self._announce is not None:
            self._announce(step)
        rest = rest_after(len(step.acted), plan.rate)
        if rest and step.plan.state is PlanState.RUNNING:
            await self._sleep(rest)
        return step.plan

    async def _let_go(self, plan_id: str) -> None:
        """Let another process go on at once; a store that is away finds out by the lease."""
        with contextlib.suppress(StoreError):
            await self._store.step(plan_id, limit=0, worker=self._name)


async def carry_out(
    store: Store,
    plan_id: str,
    *,
    by: str = "desk",
    rate: float | None = None,
    offer: float = OFFER,
    page: int = PAGE,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    announce: Callable[[Step], object] | None = None,
    progress: Callable[[Plan], object] | None = None,
) -> Plan:
    """
    Have a plan carried out, or go on where it stopped; return it once it is done, paused or halted.

    A paused plan is resumed, in the name of *by*. *rate* acts on at most so many letters a second from now on.
    Raise PlanNotFound, or MoveRefused for a plan that was halted.
    """
    check_rate(rate)
    plan = await store.plan(plan_id)
    if plan.state is PlanState.DONE:
        return plan
    if plan.state is not PlanState.RUNNING or rate not in (None, plan.rate):
        plan = await store.change_plan(plan_id, "resume", by=by, reason=plan.reason, rate=rate)
    carrier = Carrier(store, offer=offer, page=page, sleep=sleep, announce=announce, progress=progress)
    return await carrier.carry_out(plan)


def _eligible(verb: str, query_text: str) -> Query:
    """Return what matches and may be acted on: each verb starts from one status."""
    query, term = require(parse(query_text)), Term("status", "eq", (str(needed_for(verb)),))
    return query if term in query.terms else parse(f"{query.text} {term}")


def _check_limit(verb: str, limit: int | None) -> None:
    if limit is not None and limit < 1:
        message = f"cannot {verb} {limit} letters: a limit is a whole number from 1 up"
        raise QueryError(message)


def check_rate(rate: float | None) -> None:
    """Raise QueryError for a rate at which no letter would ever be acted on."""
    if rate is not None and not rate > 0:
        message = f"cannot act on {rate:g} letters a second: a rate is a number above 0; pause the plan to stop it"
        raise QueryError(message)
