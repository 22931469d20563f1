"""
The operator's writes: replay, archive, cancel, restore, purge, edit, plans.

Owns carrying them out, many rows at a time, with the audit entry in the same transaction.
Which status a verb needs is said in `core.moves`, not here.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redrive.core.letter import FailureCycle, Status, instant
from redrive.core.moves import VERBS, check_edit, check_verb
from redrive.core.plan import Plan, Step
from redrive.core.query import Query, parse
from redrive.errors import LetterNotFound, PlanNotFound
from redrive.failpoints import hit
from redrive.stores import columns
from redrive.stores.sqlite import finding, ordering, rows
from redrive.stores.sqlite.compiling import compile_query, standing
from redrive.stores.sqlite.scanning import Walk, scan
from redrive.stores.sqlite.transaction import Trait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from redrive.core.letter import Letter
    from redrive.stores.sqlite.transaction import Turn

KEPT_CYCLES = 20


class Row(NamedTuple):
    """What must be known of a letter to act on it."""

    seq: int
    id: str
    queue: str
    kind: str
    key: str | None
    lane: int
    held: int
    status: str
    token: int
    archived_from: str | None
    attempts: int
    losses: int
    error_type: str | None
    last_error: str | None
    category: str | None
    fingerprint: str | None
    why: str | None
    first_failed_us: int | None
    failed_us: int | None
    tries: bytes | None
    generation: int | None
    release: str | None
    failure_history: bytes | None
    applied_policy: str | None

    @property
    def trait(self) -> Trait:
        """What it is counted by."""
        if self.status != Status.FAILED:
            return Trait(self.queue, self.kind, self.status)
        return self.failed_trait

    @property
    def failed_trait(self) -> Trait:
        """What it is counted by when it is a dead letter."""
        return Trait(
            self.queue, self.kind, "failed", self.category or "", self.applied_policy or "", self.error_type or "",
            self.fingerprint or "",
        )  # fmt: skip


class Act(NamedTuple):
    """Who acts, why, and with which number."""

    token: int
    by: str
    reason: str
    plan: str = ""
    generation: int | None = None


_COLUMNS = ", ".join(Row._fields)


def act(turn: Turn, verb: str, letter_ids: Sequence[str], by: str, reason: str, generation: int | None) -> list[Letter]:
    """Act on these letters, all or none."""
    found = [_row(turn, letter_id) for letter_id in dict.fromkeys(letter_ids)]
    if not found:
        return []
    for row in found:
        check_verb(verb, row.id, columns.status_of(row.status))
    gone = [finding.get(turn.connection, row.id) for row in found] if verb == "purge" else []
    _CARRIED_OUT_BY[verb](turn, found, Act(turn.next_token(), by, reason, generation=generation))
    target = found[0].id if len(found) == 1 else f"{len(found)} letters"
    turn.audit(by, verb, target, len(found), reason)
    now = gone or [finding.get(turn.connection, row.id) for row in found]
    return [letter for letter in now if letter is not None]


def _row(turn: Turn, letter_id: str) -> Row:
    found = turn.sql(f"SELECT {_COLUMNS} FROM letters WHERE id = ?", (letter_id,)).fetchone()  # noqa: S608 - ours
    if found is None:
        raise LetterNotFound(letter_id)
    return Row(*found)


# ---------------------------------------------------------------------- the verbs, many rows at a time


def _replay(turn: Turn, found: Sequence[Row], act: Act) -> None:
    turn.connection.executemany(
        "UPDATE letters SET status = 'pending', dead = NULL, token = ?, updated_us = ?, due_us = ?, cycle_us = ?, "
        "attempts = 0, losses = 0, category = NULL, error_type = NULL, last_error = NULL, fingerprint = NULL, "
        "why = 'replayed', first_failed_us = NULL, failed_us = NULL, tries = NULL, applied_policy = NULL, "
        "cycles = cycles + 1, plan = ?, generation = coalesce(?, generation), failure_history = ? WHERE seq = ?",
        [
            (act.token, *(turn.now_us,) * 3, act.plan or None, act.generation, _history(turn, row, act), row.seq)
            for row in found
        ],
    )
    _rejoin(turn, found)


def _history(turn: Turn, row: Row, act: Act) -> bytes:
    cycle = FailureCycle(
        attempts=row.attempts,
        losses=row.losses,
        error_type=row.error_type or "",
        last_error=row.last_error or "",
        category=row.category or "",
        fingerprint=row.fingerprint or "",
        why=row.why or "",
        first_failed_at=_moment(row.first_failed_us),
        failed_at=_moment(row.failed_us),
        tries=columns.read_tries(row.tries),
        generation=row.generation,
        release=row.release,
        replayed_at=instant(turn.now_us),
        replayed_by=act.by,
        reason=act.reason,
        plan=act.plan,
    )
    return columns.encode((*columns.read_history(row.failure_history), cycle)[-KEPT_CYCLES:])


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else instant(micros)


def _rejoin(turn: Turn, found: Sequence[Row]) -> None:
    """Count letters that are pending again, and let each take its place behind others of its key."""
    turn.rang = True
    for row in found:
        turn.moved(row.trait, Trait(row.queue, row.kind, "pending"))
    ordering.come_back(turn, [row.seq for row in found if row.held])
    keyed = [row for row in found if row.key is not None and turn.queue(row.queue).ordered]
    # Those that came to rest before their queue kept order have no lane yet.
    turn.connection.executemany("UPDATE letters SET lane = 1 WHERE seq = ? AND lane = 0", [(r.seq,) for r in keyed])
    for queue, key in {(row.queue, row.key) for row in keyed if row.key is not None}:
        ordering.line_up(turn, queue, key)


def _archive(turn: Turn, found: Sequence[Row], act: Act) -> None:
    turn.connection.executemany(
        "UPDATE letters SET status = 'archived', dead = NULL, archived_from = status, token = ?, updated_us = ?, "
        "why = ?, plan = ?, held = held - (lane = 2), lane = min(lane, 1) WHERE seq = ?",
        [(act.token, turn.now_us, f"archived by {act.by}", act.plan or None, row.seq) for row in found],
    )
    for row in found:
        turn.moved(row.trait, Trait(row.queue, row.kind, "archived"))
        if row.lane == ordering.FIRST and row.status == Status.PENDING and row.key is not None:
            ordering.advance(turn, row.queue, row.key)


def _restore(turn: Turn, found: Sequence[Row], act: Act) -> None:
    turn.connection.executemany(
        "UPDATE letters SET status = archived_from, dead = nullif(archived_from = 'failed', 0), archived_from = NULL, "
        "token = ?, updated_us = ?, why = ?, plan = ? WHERE seq = ?",
        [(act.token, turn.now_us, f"restored by {act.by}", act.plan or None, row.seq) for row in found],
    )
    _rejoin(turn, [row for row in found if row.archived_from == Status.PENDING])
    for row in found:
        if row.archived_from == Status.FAILED:
            turn.moved(row.trait, row.failed_trait)


def _purge(turn: Turn, found: Sequence[Row], _act: Act) -> None:
    _remove(turn, [row.seq for row in found])
    for row in found:
        turn.moved(row.trait, Trait(row.queue, row.kind, "purged"))


def purge(turn: Turn, seqs: Sequence[int]) -> None:
    """Remove the letters at these places, and count them as purged."""
    sql = f"SELECT {_COLUMNS} FROM letters WHERE seq = ?"  # noqa: S608 - our own column names
    found = [Row(*rows.the_row(turn.connection, sql, (seq,))) for seq in seqs]
    if found:
        _purge(turn, found, Act(turn.next_token(), "retention", ""))


def _remove(turn: Turn, seqs: Sequence[int]) -> None:
    places = [(seq,) for seq in seqs]
    for table, column in (("letters", "seq"), ("bodies", "seq"), ("error_text", "rowid"), ("waits", "seq")):
        turn.connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", places)  # noqa: S608 - our own names


_CARRIED_OUT_BY: dict[str, Callable[[Turn, Sequence[Row], Act], None]] = {
    "replay": _replay,
    "archive": _archive,
    "cancel": _archive,
    "restore": _restore,
    "purge": _purge,
}


# ---------------------------------------------------------------------- plans


def start_plan(turn: Turn, plan: Plan) -> Plan:
    """Keep *plan*; its cut-off is now."""
    token, now_us = turn.next_token(), turn.now_us
    kept = msgspec.structs.replace(plan, id=plan.name(token, now_us), cutoff=token, created_us=now_us, cursor=0)
    _keep_plan(turn, kept)
    turn.audit(kept.by, f"plan {kept.verb}", f"{kept.id} {kept.query}", 0, kept.reason)
    return kept


def _keep_plan(turn: Turn, plan: Plan) -> None:
    turn.sql("INSERT OR REPLACE INTO plans VALUES (?, ?)", (plan.id, columns.encode(plan)))


_plan_decoder = msgspec.json.Decoder(Plan)


def read_plan(sql: Callable[..., object], plan_id: str) -> Plan:
    """Return a plan."""
    row = sql("SELECT value FROM plans WHERE id = ?", (plan_id,)).fetchone()  # type: ignore[attr-defined]
    if row is None:
        raise PlanNotFound(plan_id)
    return _plan_decoder.decode(row[0])


def step(turn: Turn, plan_id: str, limit: int) -> Step:
    """Act on the next page of a plan; cursor, acts and audit entry are one transaction."""
    plan = read_plan(turn.sql, plan_id)
    if plan.done:
        return Step(plan=plan, acted=(), skipped=0)
    most = limit if plan.limit is None else min(limit, plan.limit - plan.acted)
    found, cursor, looked_at = _next_page(turn, plan, limit, most)
    if found:
        doing = Act(turn.next_token(), plan.by, plan.reason, plan.id, plan.generation)
        _CARRIED_OUT_BY[plan.verb](turn, found, doing)
        turn.audit(plan.by, plan.verb, f"plan {plan.id}", len(found), plan.reason)
    after = msgspec.structs.replace(
        plan,
        cursor=cursor,
        acted=plan.acted + len(found),
        skipped=plan.skipped + looked_at - len(found),
        done=looked_at < limit or (plan.limit is not None and plan.acted + len(found) >= plan.limit),
    )
    hit("step.inside")
    _keep_plan(turn, after)
    return Step(plan=after, acted=tuple(row.id for row in found), skipped=looked_at - len(found))


def _next_page(turn: Turn, plan: Plan, limit: int, most: int) -> tuple[list[Row], int, int]:
    """Return the rows to act on, how far was looked, and at how many."""
    dead = VERBS[plan.verb] is Status.FAILED
    compiled = compile_query(parse(plan.query), plan.created_us, turn.connection, dead=dead)
    # The verb's own status: acts touch nothing else, and a partial index answers it.
    where = f"{standing(VERBS[plan.verb])} AND {compiled.where} AND token <= ?"
    narrowed = compiled._replace(where=where, bindings=(*compiled.bindings, plan.cutoff))
    found: list[Row] = []
    cursor, looked_at = plan.cursor, 0
    walk = Walk(_COLUMNS, plan.cursor, newest_first=False)
    for row in [Row(*values) for values in islice(scan(turn.connection, narrowed, walk), limit)]:
        if len(found) == most:
            break
        cursor, looked_at = row.seq, looked_at + 1
        if compiled.rest.is_empty or _fits(turn, row, compiled.rest, plan.created_us):
            found.append(row)
    return found, cursor, looked_at


def _fits(turn: Turn, row: Row, rest: Query, as_of_us: int) -> bool:
    letter = finding.get(turn.connection, row.id)
    return letter is not None and rest.matches(letter, as_of_us)


# ---------------------------------------------------------------------- edit and retention


def edit(turn: Turn, letter_id: str, body: tuple[bytes, str], version: int, by: str, reason: str) -> Letter:
    """Replace the payload, compare-and-set on its version."""
    _refuse_edit(turn, letter_id, version)
    row = _row(turn, letter_id)
    payload, content_type = body
    kept = payload if len(payload) <= rows.LARGE else None
    turn.sql(
        "UPDATE letters SET payload = ?, content_type = ?, payload_version = payload_version + 1, token = ?, "
        "updated_us = ? WHERE seq = ?",
        (kept, content_type, turn.next_token(), turn.now_us, row.seq),
    )
    turn.sql("DELETE FROM bodies WHERE seq = ?", (row.seq,))
    if kept is None:
        turn.sql("INSERT INTO bodies VALUES (?, ?)", (row.seq, payload))
    turn.audit(by, "edit", letter_id, 1, reason)
    letter = finding.get(turn.connection, letter_id)
    assert letter is not None  # noqa: S101 - it was there a statement ago, in this transaction
    return letter


def _refuse_edit(turn: Turn, letter_id: str, version: int) -> None:
    row = turn.sql("SELECT status, payload_version FROM letters WHERE id = ?", (letter_id,)).fetchone()
    if row is None:
        raise LetterNotFound(letter_id)
    status, found = row
    check_edit(letter_id, columns.status_of(status), found, version)
