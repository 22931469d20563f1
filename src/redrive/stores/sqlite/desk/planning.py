"""
Plans: kept, read, changed, and carried out page by page.

Owns a plan's row, the page that comes next, and one step: acts, advanced plan and audit entry in one transaction.
Knows no rule and no verb: `core.plan` says how a plan advances, `acting` carries out what it does to letters.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from redrive.core.letter import Status
from redrive.core.moves import VERBS
from redrive.core.plan import Plan, PlanState, Step, advance, as_read, begun, changed, may_step, room, taken
from redrive.core.query import Query, parse
from redrive.errors import PlanNotFound
from redrive.failpoints import hit
from redrive.stores import columns
from redrive.stores.sqlite import ordering
from redrive.stores.sqlite.desk import finding
from redrive.stores.sqlite.desk.acting import CARRIED_OUT_BY, Act, ActRow, needed, row_of
from redrive.stores.sqlite.desk.compiling import compile_query, status_clause
from redrive.stores.sqlite.desk.scanning import Walk, scan
from redrive.stores.sqlite.sql import statements

if TYPE_CHECKING:
    import apsw

    from redrive.stores.sqlite.desk.compiling import Compiled
    from redrive.stores.sqlite.transaction import Transaction

_SQL = statements("planning")
plan_decoder = msgspec.json.Decoder(Plan)


def start_plan(transaction: Transaction, plan: Plan) -> Plan:
    """Keep *plan*; its cut-off is now."""
    kept = begun(plan, transaction.next_token(), transaction.now_us)
    _keep_plan(transaction, kept)
    transaction.audit(kept.by, f"plan {kept.verb}", f"{kept.id} {kept.query}", 0, kept.reason)
    return kept


def _keep_plan(transaction: Transaction, plan: Plan) -> None:
    transaction.sql(_SQL["keep_plan"], (plan.id, columns.encode(plan)))
    transaction.sql(_SQL["open_plan" if plan.is_open else "close_plan"], (plan.id,))


def read_plan(connection: apsw.Connection, plan_id: str, now: int) -> Plan:
    """Return a plan as it stands at *now*, by the clock of leases."""
    row = connection.execute(_SQL["plan"], (plan_id,)).fetchone()
    if row is None:
        raise PlanNotFound(plan_id)
    return as_read(plan_decoder.decode(cast("bytes", row[0])), now)


def read_plans(connection: apsw.Connection, state: PlanState | None, limit: int, now: int) -> list[Plan]:
    """Return plans, newest first."""
    sql = _SQL["open_plans" if state in (PlanState.RUNNING, PlanState.PAUSED) else "plans"]
    found = [as_read(plan_decoder.decode(cast("bytes", row[0])), now) for row in connection.execute(sql)]
    wanted = [plan for plan in found if state is None or plan.state is state]
    return sorted(wanted, key=lambda plan: int(plan.cutoff), reverse=True)[:limit]


def change_plan(transaction: Transaction, plan_id: str, verb: str, by: str, reason: str, rate: float | None) -> Plan:
    """Pause, resume or halt a plan."""
    plan = read_plan(transaction.connection, plan_id, transaction.lease(0))
    kept = changed(plan, verb, now_us=transaction.now_us, rate=rate)
    _keep_plan(transaction, kept)
    transaction.audit(by, f"plan {verb}", plan_id, 0, reason)
    return kept


def step(transaction: Transaction, plan_id: str, limit: int, worker: str, lease: float) -> Step:
    """Act on the next page of a plan for *worker*; cursor, acts, lease and audit entry are one transaction."""
    now = transaction.lease(0)
    plan = read_plan(transaction.connection, plan_id, now)
    if not may_step(plan, worker, now):
        return Step(plan=plan, acted=())
    plan = taken(plan, worker, transaction.lease(lease), now)
    page = _next_page(transaction, plan, limit)
    # Nothing moves between the look and the act, which are one write transaction; awaited letters are not purged.
    found = [row for row in page.found if plan.verb != "purge" or not ordering.awaited_by(transaction, row.seq)]
    skipped = len(page.found) - len(found)
    if found:
        doing = Act(transaction.next_token(), plan.by, plan.reason, plan.id, plan.generation)
        CARRIED_OUT_BY[plan.verb](transaction, found, doing)
        transaction.audit(plan.by, plan.verb, f"plan {plan.id}", len(found), plan.reason)
    after = advance(
        plan, cursor=page.cursor, acted=len(found), skipped=skipped, further=page.further, now_us=transaction.now_us
    )
    hit("step.inside")
    _keep_plan(transaction, after)
    return Step(plan=after, acted=tuple(row.letter.id for row in found), skipped=skipped)


class NextPage(NamedTuple):
    """The rows to act on, how far was looked, and whether rows that may match are left."""

    found: list[ActRow]
    cursor: str
    further: bool


def _next_page(transaction: Transaction, plan: Plan, limit: int) -> NextPage:
    """Look at the next *limit* rows that SQL lets through; the rest of the query is judged row by row."""
    compiled = _compiled(transaction, plan)
    some, most = needed(plan.verb), room(plan, limit)
    walk = Walk(some.columns, int(plan.cursor or 0), newest_first=False)
    rows_ahead = list(islice(scan(transaction.connection, compiled, walk), limit + 1))
    found: list[ActRow] = []
    looked_at = 0
    for values in rows_ahead[:limit]:
        if len(found) == most:
            break
        row, looked_at = row_of(some, values), looked_at + 1
        if compiled.rest.is_empty or _fits(transaction, row, compiled.rest, plan.created_us):
            found.append(row)
    cursor = str(rows_ahead[looked_at - 1][0]) if looked_at else plan.cursor
    return NextPage(found, cursor, looked_at < len(rows_ahead))


def _compiled(transaction: Transaction, plan: Plan) -> Compiled:
    """Return the plan's query, its cut-off and its verb's own status, which a partial index answers."""
    dead = VERBS[plan.verb] is Status.FAILED
    compiled = compile_query(parse(plan.query), plan.created_us, transaction.connection, dead=dead)
    where = f"{status_clause(VERBS[plan.verb])} AND {compiled.where} AND token <= ?"
    return compiled._replace(where=where, bindings=(*compiled.bindings, int(plan.cutoff)))


def _fits(transaction: Transaction, row: ActRow, rest: Query, as_of_us: int) -> bool:
    letter = finding.get(transaction.connection, row.letter.id)
    return letter is not None and rest.matches(letter, as_of_us)
