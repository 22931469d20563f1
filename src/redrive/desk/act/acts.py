"""
Act on letters, by id or by query.

Owns the fork that every verb shares: letters named by id go in one transaction, all or none; letters named by a query
go by a plan. `core/moves.py` says which verb may touch which letter. Knows no listener and no terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from redrive.desk.act import plan as plans
from redrive.desk.act.outcome import PlanOutcome
from redrive.desk.look.ids import whole_ids
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
    state: str = "done"  # of its plan: running, paused, halted or done
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
    """
    Apply *verb* to *ids*, or to what matches *query*; exactly one of the two must be given.

    *limit* acts on at most so many of the query's letters (a canary), *rate* on at most so many a second.
    *generation* stamps letters that are replayed. Raise LetterNotFound or MoveRefused, and then nothing was done.
    """
    check_named(verb, ids, query)
    if ids:
        return await by_id(store, verb, ids, by=by, reason=reason, generation=generation)
    plan = await plans.start(store, verb, query, by=by, reason=reason, limit=limit, rate=rate, generation=generation)
    return done(await plans.carry_out(store, plan.id))


def done(plan: Plan) -> Done:
    """Return what *plan* has come to so far."""
    return Done(
        verb=plan.verb,
        acted=plan.acted,
        skipped=plan.skipped,
        done=plan.done,
        state=str(plan.state),
        plan=plan.id,
        query=plan.query,
        by=plan.by,
        reason=plan.reason,
    )


def nothing(verb: str, query: str, *, by: str, reason: str) -> Done:
    """Return what an act on no letters came to."""
    return Done(verb=verb, acted=0, skipped=0, done=True, plan=None, query=query, by=by, reason=reason)


def check_named(verb: str, ids: Sequence[str], query: str) -> None:
    """Raise QueryError unless letters are named in exactly one way."""
    if bool(ids) == bool(query.strip()):
        raise QueryError(f"cannot {verb}: name the letters by id or by a query, one of the two")


async def by_id(
    store: Store, verb: str, ids: Sequence[str], *, by: str, reason: str = "", generation: int | None = None
) -> Done:
    """Apply *verb* to the letters *ids*, all or none; raise LetterNotFound, AmbiguousId or MoveRefused."""
    unique = await whole_ids(store, ids)
    letters = await store.act(verb, unique, by=by, reason=reason, generation=generation)
    return Done(verb=verb, acted=len(letters), skipped=0, done=True, plan=None, query="", by=by, reason=reason)
