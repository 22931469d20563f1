"""
What operators do to letters.

Owns the verbs, for one letter, for some and for a plan's page, and edits.
Each act and its audit entry are one step; a refusal changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.core import changes
from redrive.core import query as queries
from redrive.core.letter import Letter, Status
from redrive.core.moves import VERBS, check_edit, check_verb
from redrive.core.plan import Plan, Step, advance, as_read, begun, changed, may_step, room, taken
from redrive.errors import LetterNotFound, PlanNotFound
from redrive.stores.memory import finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redrive.core.plan import PlanState
    from redrive.stores.memory.rows import Row
    from redrive.stores.memory.transaction import Contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One verb, and who does it why."""

    verb: str
    by: str
    reason: str
    plan: str = ""
    generation: int | None = None


def act(contents: Contents, deed: Act, letter_ids: Sequence[str]) -> list[Letter]:
    """Do it to these letters, all or none."""
    rows = [_row(contents, letter_id) for letter_id in dict.fromkeys(letter_ids)]
    for row in rows:
        check_verb(deed.verb, row.letter.id, row.letter.status)
    if not rows:
        return []
    target = rows[0].letter.id if len(rows) == 1 else f"{len(rows)} letters"
    contents.audit(deed.by, deed.verb, target, len(rows), deed.reason)
    gone = [finding.seen(contents, row) for row in rows] if deed.verb == "purge" else []
    _carry_out(contents, deed, rows)
    return gone or [finding.seen(contents, row) for row in rows]  # once all have moved: they may wait for each other


def _row(contents: Contents, letter_id: str) -> Row:
    row = contents.shelf.row(letter_id)
    if row is None:
        raise LetterNotFound(letter_id)
    return row


def _carry_out(contents: Contents, deed: Act, rows: Sequence[Row]) -> list[Letter]:
    token = contents.next_token()
    return [_do(contents, deed, row, token) for row in rows]


def _do(contents: Contents, deed: Act, row: Row, token: int) -> Letter:
    if deed.verb == "purge":
        contents.shelf.remove(row)
        return row.letter
    letter = replace(_after(deed, row, contents.now_us), token=token)
    if letter.status is Status.ARCHIVED:
        row.archived_from = row.letter.status
    contents.shelf.change(row, letter)
    return letter


def _after(deed: Act, row: Row, now: int) -> Letter:
    match deed.verb:
        case "replay":
            return changes.replayed(
                row.letter, now, by=deed.by, reason=deed.reason, plan=deed.plan, generation=deed.generation
            )
        case "restore":
            return changes.restored(row.letter, row.archived_from, now, by=deed.by, plan=deed.plan)
        case _:
            return changes.archived(row.letter, now, by=deed.by, plan=deed.plan)


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
    contents.plans[plan_id] = kept = changed(plan_of(contents, plan_id), verb, rate=rate)
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
    deed = Act(verb=plan.verb, by=plan.by, reason=plan.reason, plan=plan.id, generation=plan.generation)
    acted = tuple(letter.id for letter in _carry_out(contents, deed, page))
    if acted:
        contents.audit(plan.by, plan.verb, f"plan {plan.id}", len(acted), plan.reason)
    cursor = str(page[-1].seq) if page else plan.cursor
    kept = advance(plan, cursor=cursor, acted=len(acted), skipped=0, further=further)  # nothing moves under the lock
    contents.plans[plan.id] = kept
    return Step(plan=kept, acted=acted)


def _in_plan(contents: Contents, plan: Plan) -> Iterator[Row]:
    """Yield the letters still to act on; a letter that the verb is not for is no part of a plan."""
    wanted, now = queries.parse(plan.query), plan.created_us  # a plan is frozen: its spans too
    start, cutoff = int(plan.cursor or 0), int(plan.cutoff)
    for seq in sorted(seq for seq in contents.shelf.rows if seq > start):
        row = contents.shelf.rows[seq]
        fits = row.letter.status is VERBS[plan.verb] and row.letter.token <= cutoff
        if fits and wanted.matches(row.letter, now):
            yield row


def edit(
    contents: Contents, letter_id: str, payload: bytes, content_type: str, *, version: int, by: str, reason: str
) -> Letter:
    """Replace a payload if no operator did so since *version*."""
    row = _row(contents, letter_id)
    check_edit(letter_id, row.letter.status, row.letter.payload_version, version)
    letter = replace(changes.edited(row.letter, payload, content_type, contents.now_us), token=contents.next_token())
    contents.shelf.change(row, letter)
    contents.audit(by, "edit", letter_id, 1, reason)
    return finding.seen(contents, row)
