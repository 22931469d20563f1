"""
Act on letters, by id or by query.

Owns the fork that every verb shares: ids go in one transaction, all or none; a query goes by
a plan. Which verb may touch which letter is said in `core/moves.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from redrive.desk import plan as plans
from redrive.desk.ids import whole_ids
from redrive.desk.outcome import PlanOutcome
from redrive.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.plan import Plan
    from redrive.stores.contract import Store


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What an act came to; *plan* is null when letters were named by id."""

    verb: str
    acted: int
    skipped: int  # in the plan, but its status did not allow the verb any more
    done: bool
    plan: str | None
    query: str
    by: str
    reason: str
    outcome: PlanOutcome | None = None  # how its letters did, where that was waited for


async def act(
    store: Store,
    verb: str,
    ids: Sequence[str] = (),
    *,
    query: str = "",
    by: str,
    reason: str = "",
    limit: int | None = None,
    rate: float | None = None,
    generation: int | None = None,
) -> Done:
    """Apply *verb* to *ids*, or to what matches *query*; exactly one of the two must be given."""
    if bool(ids) == bool(query.strip()):
        message = f"cannot {verb}: name letters by id or by a query, one of the two"
        raise QueryError(message)
    if ids:
        return await _by_id(store, verb, ids, by=by, reason=reason, generation=generation)
    plan = await plans.start(store, verb, query, by=by, reason=reason, limit=limit, generation=generation)
    return done(await plans.carry_out(store, plan.id, rate=rate))


def done(plan: Plan) -> Done:
    """Return what *plan* has come to so far."""
    return Done(
        verb=plan.verb,
        acted=plan.acted,
        skipped=plan.skipped,
        done=plan.done,
        plan=plan.id,
        query=plan.query,
        by=plan.by,
        reason=plan.reason,
    )


async def _by_id(store: Store, verb: str, ids: Sequence[str], *, by: str, reason: str, generation: int | None) -> Done:
    unique = await whole_ids(store, ids)
    letters = await store.act(verb, unique, by=by, reason=reason, generation=generation)
    return Done(verb=verb, acted=len(letters), skipped=0, done=True, plan=None, query="", by=by, reason=reason)
