"""
Act on many letters, safely.

Owns how a plan is made, previewed and carried out: page by page, each page one transaction of the
store with its audit entry, each letter touched at most once per plan. Whoever is killed in between
runs the same plan again and goes on where it stopped. Knows no terminal.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from redrive.core.moves import needed_for
from redrive.core.plan import Plan
from redrive.core.query import Term, parse, require
from redrive.desk.views import LetterRow, row
from redrive.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.core.plan import Step
    from redrive.core.query import Query
    from redrive.stores.contract import Store

PAGE = 2_000
COUNTED = 10_000  # letters that a preview counts unless it is asked for more
_SAMPLE = 5
_LOOK = 500  # letters whose kinds a preview counts


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
    page = await store.find(narrowed, limit=_LOOK, payloads=False)
    kinds = Counter(letter.kind for letter in page.letters)
    return Preview(
        verb=verb,
        query=narrowed.text,
        count=count,
        at_least=count >= at_most,
        kinds=dict(kinds.most_common()),
        sample=[row(letter) for letter in page.letters[:_SAMPLE]],
    )


async def start(
    store: Store,
    verb: str,
    query_text: str,
    *,
    by: str,
    reason: str = "",
    limit: int | None = None,
    generation: int | None = None,
) -> Plan:
    """
    Keep a plan and return it; nothing is acted on yet, and no count is needed.

    The set is fixed now: letters that move later are not part of it. *limit* acts on at most so
    many (a canary). Raise QueryError for an empty query.
    """
    _check_limit(verb, limit)
    plan = Plan(
        verb=verb,
        query=_eligible(verb, query_text).text,
        by=by,
        reason=reason,
        limit=limit,
        generation=generation,
    )
    return await store.start_plan(plan)


async def carry_out(
    store: Store,
    plan_id: str,
    *,
    rate: float | None = None,
    page: int = PAGE,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    progress: Callable[[Step], object] | None = None,
) -> Plan:
    """
    Carry out a plan to its end, or go on where an earlier run stopped; return it done.

    *rate* acts on at most so many letters a second; *progress* is called after each page.
    Raise PlanNotFound.
    """
    size = _page_size(page, rate)
    plan = await store.plan(plan_id)
    while not plan.done:
        step = await store.step(plan_id, limit=size)
        plan = step.plan
        if progress is not None:
            progress(step)
        if rate and step.acted and not plan.done:
            await sleep(len(step.acted) / rate)
    return plan


def _eligible(verb: str, query_text: str) -> Query:
    """Return what matches and may be acted on: each verb starts from one status."""
    query, term = require(parse(query_text)), Term("status", "eq", (str(needed_for(verb)),))
    return query if term in query.terms else parse(f"{query.text} {term}")


def _check_limit(verb: str, limit: int | None) -> None:
    if limit is not None and limit < 1:
        message = f"cannot {verb} {limit} letters: a limit is a whole number from 1 up"
        raise QueryError(message)


def _page_size(page: int, rate: float | None) -> int:
    """Return how many letters go at once: never more than one second's worth."""
    if rate is None:
        return page
    if rate <= 0:
        message = f"cannot act on {rate:g} letters a second: a rate is a number above 0; pause the queue to stop it"
        raise QueryError(message)
    return max(1, min(page, int(rate)))
