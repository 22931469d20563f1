"""
Plans: kept, read, changed, and carried out page by page.

Owns the page that comes next, and one step. Knows no rule and no verb: `core.plan` says how a plan advances, `acting`
carries out what it does to letters.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from redrive.core import query as queries
from redrive.core.moves import VERBS
from redrive.core.plan import Plan, Step, advance, as_read, begun, changed, may_step, room, taken
from redrive.errors import PlanNotFound
from redrive.stores.memory import ordering
from redrive.stores.memory.desk.acting import Act, carry_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.core.plan import PlanState
    from redrive.stores.memory.rows import Row
    from redrive.stores.memory.transaction import Contents


def start_plan(contents: Contents, plan: Plan) -> Plan:
    """Keep *plan*, cut off at this moment."""
    kept = begun(plan, contents.next_token(), contents.now_us)
    contents.plans[kept.id] = kept
    contents.audit(kept.by, f"plan {kept.verb}", f"{kept.id} {kept.query}", 0, kept.reason)
    return kept


def plan_of(contents: Contents, plan_id: str) -> Plan:
    """Return a plan; raise PlanNotFound."""
    if plan_id not in contents.plans:
        raise PlanNotFound(plan_id)
    return as_read(contents.plans[plan_id], contents.now_ms)


def plans(contents: Contents, state: PlanState | None, limit: int) -> list[Plan]:
    """Return plans, newest first."""
    found = [as_read(plan, contents.now_ms) for plan in reversed(contents.plans.values())]
    return [plan for plan in found if state is None or plan.state is state][:limit]


def change_plan(contents: Contents, plan_id: str, verb: str, *, by: str, reason: str, rate: float | None) -> Plan:
    """Pause, resume or halt a plan."""
    contents.plans[plan_id] = kept = changed(plan_of(contents, plan_id), verb, now_us=contents.now_us, rate=rate)
    contents.audit(by, f"plan {verb}", plan_id, 0, reason)
    return kept


def step(contents: Contents, plan_id: str, limit: int, worker: str, lease: float) -> Step:
    """Act on the plan's next *limit* letters, and let *worker* hold it."""
    plan = plan_of(contents, plan_id)
    if not may_step(plan, worker, contents.now_ms):
        return Step(plan=plan, acted=())
    plan = taken(plan, worker, contents.lease(lease), contents.now_ms)
    rows = _in_plan(contents, plan)
    page = list(islice(rows, room(plan, limit)))
    further = next(rows, None) is not None
    awaited = [row for row in page if plan.verb == "purge" and ordering.awaited_by(contents.table, row)]
    asked = Act(verb=plan.verb, by=plan.by, reason=plan.reason, plan=plan.id, generation=plan.generation)
    acted = tuple(letter.id for letter in carry_out(contents, asked, [row for row in page if row not in awaited]))
    if acted:
        contents.audit(plan.by, plan.verb, f"plan {plan.id}", len(acted), plan.reason)
    cursor = str(page[-1].seq) if page else plan.cursor
    kept = advance(plan, cursor=cursor, acted=len(acted), skipped=len(awaited), further=further, now_us=contents.now_us)
    contents.plans[plan.id] = kept
    return Step(plan=kept, acted=acted, skipped=len(awaited))  # nothing else moves under the lock


def _in_plan(contents: Contents, plan: Plan) -> Iterator[Row]:
    """Yield the letters still to act on; a letter that the verb is not for is no part of a plan."""
    wanted, now = queries.parse(plan.query), plan.created_us  # a plan is frozen: its spans too
    start, cutoff = int(plan.cursor or 0), int(plan.cutoff)
    for seq in sorted(seq for seq in contents.table.rows if seq > start):
        row = contents.table.rows[seq]
        fits = row.letter.status is VERBS[plan.verb] and row.letter.token <= cutoff
        if fits and wanted.matches(row.letter, now):
            yield row
