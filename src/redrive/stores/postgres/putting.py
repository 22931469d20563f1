"""
Letters in.

Owns turning drafts into the columns of one call. Who is a duplicate, which queue is full and
whom a letter waits for is looked at by the server, in the same transaction.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec

from redrive.core.letter import Status
from redrive.core.moves import Move
from redrive.errors import LetterNotFound, QueueFull
from redrive.stores.contract import Receipt
from redrive.stores.postgres import rows
from redrive.stores.postgres.settling import move_of
from redrive.stores.postgres.texts import escape, is_odd, unescape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.letter import Draft

_LATEST_US = 253_402_300_799_999_999  # the last microsecond of the year 9999


def columns_of(drafts: Sequence[Draft]) -> list[Any]:
    """Return the arguments of `outbox_put` that say what is put: one list per column."""
    plain = [_values(draft) for draft in drafts]
    return [*map(list, zip(*plain, strict=True)), _rich(drafts)]


def _values(draft: Draft) -> tuple[Any, ...]:
    texts = (
        draft.queue, draft.kind, draft.content_type, draft.key, draft.idempotency_key, draft.policy, draft.origin,
        draft.handler, draft.tenant,
    )  # fmt: skip
    odd = is_odd("".join(filter(None, texts)))
    queue, kind, content_type, key, idempotency_key, policy, origin, handler, tenant = (
        map(escape, texts) if odd else texts
    )
    due = None if draft.due_us is None else min(draft.due_us, _LATEST_US)
    return (
        draft.id, queue, kind, draft.payload, content_type, key, idempotency_key, int(draft.priority),
        min(round(draft.delay * 1e6), _LATEST_US >> 2), due, policy, draft.generation, origin, handler, tenant,
        rows.extras_of(draft), odd,
    )  # fmt: skip


def _rich(drafts: Sequence[Draft]) -> str | None:
    """Return what few drafts have: those they wait for, and the failure of a dead letter of somebody else's."""
    rich = [
        {"n": n, "after": [canonical(other) for other in draft.after], "failure": _failure(draft)}
        for n, draft in enumerate(drafts, start=1)
        if draft.after or draft.failure is not None
    ]
    return msgspec.json.encode(rich).decode() if rich else None


def _failure(draft: Draft) -> Any:
    if draft.failure is None:
        return None
    return move_of(0, 0, Move(Status.FAILED, "collected", failure=draft.failure))


def canonical(letter_id: str) -> str:
    """Return *letter_id* as every store writes it; raise LetterNotFound for what cannot be one."""
    try:
        return str(uuid.UUID(letter_id))
    except ValueError:
        raise LetterNotFound(letter_id) from None


def receipts_of(drafts: Sequence[Draft], duplicates: Sequence[Any]) -> list[Receipt]:
    """Return a receipt per draft; *duplicates* are the places that were not kept, and what is kept instead."""
    receipts = [Receipt(draft.id) for draft in drafts]
    for place, kept in duplicates:
        receipts[place - 1] = Receipt(kept, duplicate=True)
    return receipts


def refusal(error: asyncpg.PostgresError) -> Exception | None:
    """Return what the server refused, in our words; None if it is something else."""
    match error.sqlstate:
        case "RD404":
            return LetterNotFound(str(error.detail))
        case "RD507":
            queue, most = msgspec.json.decode(str(error.detail))
            return QueueFull(unescape(queue), most)
    return None
