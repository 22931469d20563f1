"""
Plans: kept, read, changed, and carried out page by page.

Owns a plan's row, the page that comes next, and one step: acts, advanced plan and audit entry in one transaction.
Knows no rule and no verb: `core.plan` says how a plan advances, `acting` carries out what it does to letters.

A plan's cut-off is a number of the same sequence that every act takes its own from. An act
takes its number under the lock of the rows it moves, so a letter's numbers only grow: one that
a plan has moved stays beyond its cut-off, however late other transactions commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redrive.core.moves import VERBS
from redrive.core.plan import Plan, PlanState, Step, advance, as_read, begun, changed, may_step, room, taken
from redrive.core.query import parse
from redrive.errors import PlanNotFound
from redrive.failpoints import hit
from redrive.stores.columns import encode
from redrive.stores.postgres.desk.acting import ActTerms, awaited_of, carry_out, lock
from redrive.stores.postgres.desk.compiling import compile_query
from redrive.stores.postgres.rows import letter_of
from redrive.stores.postgres.texts import escape, unescape

if TYPE_CHECKING:
    from redrive.stores.postgres.server.transaction import Transaction


async def start_plan(transaction: Transaction, plan: Plan) -> Plan:
    """Keep *plan*; its cut-off is now."""
    kept = begun(plan, await transaction.value("newest_token"), await transaction.now_us())
    await _keep_plan(transaction, kept)
    await transaction.audit(kept.by, f"plan {kept.verb}", f"{kept.id} {kept.query}", 0, kept.reason)
    return kept


async def _keep_plan(transaction: Transaction, plan: Plan) -> None:
    told = {field: escape(getattr(plan, field)) for field in _TOLD}
    await transaction.rows("write_plan", told["id"], encode(msgspec.structs.replace(plan, **told)))
    await transaction.rows("open_plan" if plan.is_open else "close_plan", told["id"])


plan_decoder = msgspec.json.Decoder(Plan)
_TOLD = ("id", "query", "by", "reason", "holder")  # what people say


async def read_plan(transaction: Transaction, plan_id: str, statement: str = "read_plan") -> Plan:
    """Return a plan as it stands now."""
    value = await transaction.value(statement, escape(plan_id))
    if value is None:
        raise PlanNotFound(plan_id)
    return _plan_of(value, await _lease_now(transaction))


async def read_plans(transaction: Transaction, state: PlanState | None, limit: int) -> list[Plan]:
    """Return plans, newest first."""
    is_open = state in (PlanState.RUNNING, PlanState.PAUSED)
    rows, now = await transaction.rows("open_plans" if is_open else "plans"), await _lease_now(transaction)
    found = [_plan_of(row["value"], now) for row in rows]
    wanted = [plan for plan in found if state is None or plan.state is state]
    return sorted(wanted, key=lambda plan: int(plan.cutoff), reverse=True)[:limit]


def _plan_of(value: bytes, now: int) -> Plan:
    plan = plan_decoder.decode(value)
    told = {field: unescape(getattr(plan, field)) for field in _TOLD}
    return as_read(msgspec.structs.replace(plan, **told), now)


async def _lease_now(transaction: Transaction) -> int:
    """Return the microsecond of the clock of leases."""
    return int(await transaction.value("lease_now", transaction.now.lease))


async def change_plan(
    transaction: Transaction, plan_id: str, verb: str, by: str, reason: str, rate: float | None
) -> Plan:
    """Pause, resume or halt a plan."""
    plan = await read_plan(transaction, plan_id, "lock_plan")
    kept = changed(plan, verb, now_us=await transaction.now_us(), rate=rate)
    await _keep_plan(transaction, kept)
    await transaction.audit(by, f"plan {verb}", plan_id, 0, reason)
    return kept


async def step(transaction: Transaction, plan_id: str, limit: int, worker: str, lease: float) -> Step:
    """Act on the next page of a plan for *worker*; cursor, acts, lease and audit entry are one transaction."""
    plan, now = await read_plan(transaction, plan_id, "lock_plan"), await _lease_now(transaction)
    if not may_step(plan, worker, now):
        return Step(plan=plan, acted=())
    plan = taken(plan, worker, now + round(lease * 1e6), now)
    page = await _next_page(transaction, plan, limit)
    acted = await _act_on(transaction, plan, page.seqs)
    moved = len(page.seqs) - len(acted)
    now_us = await transaction.now_us()
    after = advance(plan, cursor=page.cursor, acted=len(acted), skipped=moved, further=page.further, now_us=now_us)
    hit("step.inside")
    await _keep_plan(transaction, after)
    return Step(plan=after, acted=tuple(acted), skipped=moved)


class NextPage(NamedTuple):
    """The letters to act on, how far was looked, and whether letters that may match are left."""

    seqs: list[int]
    cursor: str
    further: bool


async def _next_page(transaction: Transaction, plan: Plan, limit: int) -> NextPage:
    """Look at the next *limit* letters that SQL lets through; the rest of the query is judged row by row."""
    compiled = compile_query(parse(plan.query), transaction.sql["schema"], plan.created_us)
    n = len(compiled.bindings)
    columns = "seq" if compiled.rest.is_empty else transaction.sql["letter"]
    # The verb's own status, as a literal: acts touch nothing else, and a partial index answers it.
    sql = (
        f"SELECT {columns} FROM {transaction.sql['schema']}.outbox "  # noqa: S608 - parameters only
        f"WHERE status = '{VERBS[plan.verb].value}' AND {compiled.where} AND token <= ${n + 1} AND seq > ${n + 2} "
        f"ORDER BY seq LIMIT ${n + 3}"
    )
    start, most = int(plan.cursor or 0), room(plan, limit)
    ahead = await transaction.fetch(sql, *compiled.bindings, int(plan.cutoff), start, limit + 1)
    seqs: list[int] = []
    looked_at = 0
    for row in ahead[:limit]:
        if len(seqs) == most:
            break
        looked_at += 1
        if compiled.rest.is_empty or compiled.rest.matches(letter_of(row, transaction.whole), plan.created_us):
            seqs.append(row[0])
    cursor = str(ahead[looked_at - 1][0]) if looked_at else plan.cursor
    return NextPage(seqs, cursor, looked_at < len(ahead))


async def _act_on(transaction: Transaction, plan: Plan, seqs: list[int]) -> list[str]:
    """Act on those that no other process moved since the look; return their ids."""
    if not seqs:
        return []
    fit = [
        row
        for row in await lock(transaction, seqs)
        if row["status"] == VERBS[plan.verb].value and row["token"] <= int(plan.cutoff)
    ]
    if plan.verb == "purge":
        awaited = await awaited_of(transaction, [row["seq"] for row in fit])
        fit = [row for row in fit if row["seq"] not in awaited]
    if fit:
        await carry_out(
            transaction,
            plan.verb,
            [row["seq"] for row in fit],
            ActTerms(plan.by, plan.reason, plan.id, plan.generation),
        )
        await transaction.audit(plan.by, plan.verb, f"plan {plan.id}", len(fit), plan.reason)
    return [row["id"] for row in fit]
