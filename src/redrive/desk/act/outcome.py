"""
How the letters of a plan did.

Owns waiting until they have come to rest, and counting their statuses. It polls the store, because no store announces
a settled letter. Knows no terminal.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import Status
from redrive.core.query import parse
from redrive.core.query.terms import quoted
from redrive.errors import MoveRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.core.plan import Plan
    from redrive.stores.contract import Store

WAIT = 60.0  # seconds
_PAUSE = 0.5  # seconds between two looks
_PAGE = 1_000
_UNDECIDED = (Status.PENDING, Status.IN_FLIGHT)


class PlanOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where the letters that a plan replayed stand; the four numbers together are all of them."""

    plan: str
    delivered: int
    failed: int  # again
    waiting: int  # pending or in flight
    gone: int  # acted on by an operator since, or removed by retention

    @property
    def healthy(self) -> bool:
        """Whether all of them have come to rest and none failed again."""
        return not self.failed and not self.waiting


async def outcome(
    store: Store,
    plan_id: str,
    *,
    wait: float = WAIT,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> PlanOutcome:
    """
    Wait until the letters of a replay have come to rest, at most *wait* seconds, and say how they did.

    Raise PlanNotFound, or MoveRefused for a plan of another verb.
    """
    plan = await store.plan(plan_id)
    if plan.verb != "replay":
        raise MoveRefused(
            f"cannot wait for the letters of plan {plan_id!r}: it was made to {plan.verb}, and only letters that are "
            f"replayed run; look at them with `redrive ls -q {query_of(plan_id)}`"
        )
    undecided = parse(f"{query_of(plan_id)} status:{','.join(_UNDECIDED)}")
    while wait > 0 and await store.count(undecided, at_most=1):
        pause = min(_PAUSE, wait)
        await sleep(pause)
        wait -= pause
    return await _counted(store, plan)


def query_of(plan_id: str) -> str:
    """Return the query that finds the letters of a plan."""
    return f"plan:{quoted(plan_id)}"


async def _counted(store: Store, plan: Plan) -> PlanOutcome:
    """Count each letter once: its place in the list stays the same while others move."""
    query, cursor, counts = parse(query_of(plan.id)), None, Counter[Status]()
    while True:
        page = await store.find(query, cursor=cursor, limit=_PAGE, payloads=False)
        counts.update(letter.status for letter in page.letters)
        cursor = page.cursor
        if cursor is None:
            return _outcome(plan, counts)


def _outcome(plan: Plan, counts: Counter[Status]) -> PlanOutcome:
    delivered, failed = counts[Status.DELIVERED], counts[Status.FAILED]
    waiting = sum(counts[status] for status in _UNDECIDED)
    gone = max(0, plan.acted - delivered - failed - waiting)
    return PlanOutcome(plan=plan.id, delivered=delivered, failed=failed, waiting=waiting, gone=gone)
