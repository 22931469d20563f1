"""
Letters in.

Owns admission: duplicates, full queues, unknown dependencies, and the insert itself.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.core.letter import Status
from redrive.core.moves import Move
from redrive.errors import LetterNotFound, QueueFull
from redrive.failpoints import hit
from redrive.stores import columns
from redrive.stores.contract import Receipt
from redrive.stores.sqlite import failing, ordering, rows
from redrive.stores.sqlite.arrivals import is_plain
from redrive.stores.sqlite.transaction import Trait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.letter import Draft, Failure
    from redrive.stores.sqlite.transaction import Turn

_INSERT = f"""
INSERT INTO letters (seq, {rows.HOT}, status, token, held, lane, extras, why, lease)
VALUES ({", ".join("?" * 29)}) ON CONFLICT DO NOTHING
"""  # noqa: S608 - our own column names


def put(turn: Turn, drafts: Sequence[Draft]) -> list[Receipt]:
    """Keep *drafts*; duplicates are answered with the id that is kept."""
    turn.rang = True
    if not turn.careful and all([is_plain(draft, turn.queues.get(draft.queue)) for draft in drafts]):  # noqa: C419 - quicker
        return turn.arrivals.add(drafts, turn.next_seq(len(drafts)), turn.now_us)
    turn.insert_arrivals()
    return _put_carefully(turn, drafts)


def _put_carefully(turn: Turn, drafts: Sequence[Draft]) -> list[Receipt]:
    if any(draft.after for draft in drafts):
        _refuse_unknown(turn, drafts)
    _refuse_overflow(turn, drafts)
    token = turn.next_token()
    kept: dict[str, str] = {}  # under which id each draft of this call is kept
    receipts = []
    for draft in drafts:
        receipts.append(_keep(turn, _meant(draft, kept), token))
        kept.setdefault(draft.id, receipts[-1].id)
    hit("put.inside")
    return receipts


def _refuse_unknown(turn: Turn, drafts: Sequence[Draft]) -> None:
    """Refuse to wait for what is not kept; a duplicate changes nothing, so what it would wait for may be gone."""
    met: set[str] = set()
    fresh: set[tuple[str, ...]] = set()
    for draft in drafts:
        names = {(draft.id,), _name(draft)}
        if fresh.isdisjoint(names) and _kept_id(turn, draft) is None:
            for letter_id in draft.after:
                if letter_id not in met and not _find(turn, letter_id):
                    raise LetterNotFound(letter_id)
            fresh |= names
        met.add(draft.id)


def _find(turn: Turn, letter_id: str) -> tuple[int, str] | None:
    return turn.sql("SELECT seq, status FROM letters WHERE id = ?", (letter_id,)).fetchone()


def _meant(draft: Draft, kept: dict[str, str]) -> Draft:
    """Return *draft* waiting for what is kept: one that it names may be a duplicate, kept under an older id."""
    return replace(draft, after=tuple(kept.get(other, other) for other in draft.after)) if draft.after else draft


def _needed(turn: Turn, draft: Draft) -> list[int]:
    """Return the places of the letters that *draft* must wait for."""
    found = (_find(turn, letter_id) for letter_id in dict.fromkeys(draft.after))
    return [row[0] for row in found if row is not None and row[1] != Status.DELIVERED]


def _refuse_overflow(turn: Turn, drafts: Sequence[Draft]) -> None:
    limited = [draft for draft in drafts if turn.queue(draft.queue).max_size is not None and draft.failure is None]
    fresh = {_name(draft): draft.queue for draft in limited if _kept_id(turn, draft) is None}
    for queue, arriving in Counter(fresh.values()).items():
        most = turn.queue(queue).max_size or 0
        if turn.counted(queue, Status.PENDING, Status.IN_FLIGHT) + arriving > most:
            raise QueueFull(queue, most)


def _name(draft: Draft) -> tuple[str, ...]:
    """Return what makes two drafts of one call the same letter."""
    if draft.idempotency_key is None:
        return (draft.id,)
    return (draft.queue, draft.kind, draft.idempotency_key)


def _kept_id(turn: Turn, draft: Draft) -> str | None:
    sql = (
        "SELECT id FROM letters WHERE id = ? "
        "UNION ALL SELECT id FROM letters WHERE queue = ? AND kind = ? AND idempotency_key = ?"
    )
    row = turn.sql(sql, (draft.id, draft.queue, draft.kind, draft.idempotency_key)).fetchone()
    return None if row is None else row[0]


def _keep(turn: Turn, draft: Draft, token: int) -> Receipt:
    lane = ordering.place(turn, draft.queue, draft.key)
    if draft.failure is not None:
        lane = min(lane, ordering.FIRST)  # it waits for nobody; a replay will line it up
    on_seqs = _needed(turn, draft) if draft.after else []
    seq = turn.next_seq()
    held = len(on_seqs) + (lane == ordering.BEHIND)
    turn.sql(_INSERT, _values(turn, draft, seq, token, held, lane))
    if not turn.connection.changes():
        return Receipt(_kept_id(turn, draft) or draft.id, duplicate=True)
    if len(draft.payload) > rows.LARGE:
        turn.sql("INSERT INTO bodies VALUES (?, ?)", (seq, draft.payload))
    if on_seqs:
        ordering.wait_for(turn, seq, on_seqs)
    turn.tally(Trait(draft.queue, draft.kind, "enqueued"), 1)
    turn.tally(Trait(draft.queue, draft.kind, "pending"), 1)
    if draft.failure is not None:
        _collect(turn, draft, draft.failure, seq, token)
    return Receipt(draft.id)


def _collect(turn: Turn, draft: Draft, failure: Failure, seq: int, token: int) -> None:
    """Somebody else's dead letter: it failed before it came here."""
    row = failing.Standing(seq, draft.queue, draft.kind, draft.key, 0, None, None, ordering.UNORDERED, "pending")
    failing.fail(turn, row, Move(Status.FAILED, "collected", failure=failure), token)
    failed_us = turn.now_us if draft.failed_us is None else draft.failed_us
    first_us = failed_us if draft.first_failed_us is None else draft.first_failed_us
    sql = "UPDATE letters SET attempts = ?, first_failed_us = ?, failed_us = ? WHERE seq = ?"
    turn.sql(sql, (draft.attempts, first_us, failed_us, seq))


def _values(turn: Turn, draft: Draft, seq: int, token: int, held: int, lane: int) -> tuple[object, ...]:
    now = turn.now_us
    due = now + round(draft.delay * 1e6) if draft.due_us is None else draft.due_us
    payload = draft.payload if len(draft.payload) <= rows.LARGE else None
    return (
        seq, draft.id, draft.queue, draft.kind, payload, draft.content_type, draft.key, draft.idempotency_key,
        int(draft.priority), due, 0, 0, draft.policy, draft.generation, draft.origin, draft.handler, draft.tenant,
        0, now, now, now, 1, "pending", token, held, lane, columns.extras_of(draft), "enqueued",
        turn.lease(0),
    )  # fmt: skip
