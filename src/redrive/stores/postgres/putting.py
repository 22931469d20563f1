"""
Letters in.

Owns the call that keeps drafts, and turning them into its columns. The server finds out, in the same transaction,
which of them are duplicates, which queue is full and what a letter waits for.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec

from redrive.core.letter import JSON, Priority, Status
from redrive.core.moves import Move
from redrive.core.why import Why
from redrive.errors import LetterNotFound, QueueFull
from redrive.stores import columns
from redrive.stores.columns import AFTER_FAILURE
from redrive.stores.contract import Receipt
from redrive.stores.postgres.server.transaction import new_call
from redrive.stores.postgres.settling import move_of
from redrive.stores.postgres.texts import NONE, SHORT, Whole, is_odd, is_odd_name, name, unescape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.letter import Draft
    from redrive.stores.postgres.server.calls import Calls

_LATEST_US = 253_402_300_799_999_999  # the last microsecond of the year 9999


_TEXTS = ("queue", "kind", "content_type", "key", "idempotency_key", "policy", "origin", "handler", "tenant")


async def put(calls: Calls, drafts: Sequence[Draft]) -> list[Receipt]:
    """Keep *drafts*, all or none, in one transaction; after a lost answer the server still knows the call."""
    call, noted = new_call(), dict[str, str]()
    columns = columns_of(drafts, noted) if drafts else []

    async def work(connection: Any, again: bool) -> list[Any]:  # noqa: FBT001 - every work is called like this
        if not drafts:
            return []
        try:
            return await calls.fetch(connection, "put", call, again, *columns, calls.now().wall)
        except asyncpg.PostgresError as error:
            if (refused := refusal(error, noted)) is None:
                raise
            raise refused from None

    return receipts_of(drafts, await calls.ask(work, noted=noted))


def columns_of(drafts: Sequence[Draft], noted: dict[str, str]) -> list[Any]:
    """
    Return the arguments of `outbox_put` that say what is put: one list per column.

    A column in which every draft has the default is an empty list.
    Long names are *noted*.
    """
    texts = {field: [getattr(draft, field) for draft in drafts] for field in _TEXTS}
    odds = _escape_odd(texts, noted)
    queues, kinds, *others = texts.values()
    types, *named = others
    keys, idempotency_keys, policies, origins, handlers, tenants = map(_said, named)
    return [
        [draft.id for draft in drafts],
        queues,
        kinds,
        [draft.payload for draft in drafts],
        _said(types, JSON),
        keys,
        idempotency_keys,
        _said([int(draft.priority) for draft in drafts], Priority.MEDIUM),
        _said([micros(draft.delay) for draft in drafts], 0),
        _said([None if draft.due_us is None else min(draft.due_us, _LATEST_US) for draft in drafts]),
        policies,
        _said([draft.generation for draft in drafts]),
        origins,
        handlers,
        tenants,
        _said([columns.extras_of(draft) for draft in drafts]),
        odds,
        _said([draft.unique_in == "queue" for draft in drafts], False),  # noqa: FBT003 - the value of a column
        rich_of(drafts, noted),
    ]


def row_of(draft: Draft) -> list[Any]:
    """Return the arguments of `outbox_accept` but the last: the columns of one draft, and its long names."""
    texts = [getattr(draft, field) for field in _TEXTS]
    said = "".join(filter(None, texts))
    odd, noted = False, dict[str, str]()
    if len(said) > SHORT or is_odd(said):
        odd = any(map(is_odd_name, filter(None, texts)))
        texts = [name(text, noted) for text in texts]
    rich = rich_of([draft], noted) if _is_rich(draft) else None
    queue, kind, content_type, key, idempotency_key, policy, origin, handler, tenant = texts
    return [
        draft.id,
        queue,
        kind,
        draft.payload,
        content_type,
        key,
        idempotency_key,
        int(draft.priority),
        micros(draft.delay) if draft.delay else None,
        None if draft.due_us is None else min(draft.due_us, _LATEST_US),
        policy,
        draft.generation,
        origin,
        handler,
        tenant,
        columns.extras_of(draft),
        odd,
        draft.unique_in == "queue",
        rich,
        msgspec.json.encode(noted).decode() if noted else None,
    ]


def micros(delay: float) -> int:
    """Return *delay* in microseconds, as far as the server can add them."""
    return min(round(delay * 1e6), _LATEST_US >> 2)


def _said(column: list[Any], default: Any = None) -> list[Any]:
    return [] if column.count(default) == len(column) else column


def _escape_odd(texts: dict[str, list[Any]], noted: dict[str, str]) -> list[bool]:
    """Escape what must be, in place; return which drafts have such text, or nothing if none has."""
    said = [list(filter(None, column)) for column in texts.values()]
    if not any(is_odd("".join(column)) or max(map(len, column), default=0) > SHORT for column in said):
        return []
    odds = [any(map(is_odd_name, filter(None, row))) for row in zip(*texts.values(), strict=True)]
    for column in texts.values():
        column[:] = [name(text, noted) for text in column]
    return odds


def rich_of(drafts: Sequence[Draft], noted: dict[str, str]) -> str | None:
    """Return what few drafts have: letters that they wait for, a failure that happened elsewhere, a time in a spool."""
    rich = [
        {
            "n": n,
            "after": [canonical(other) for other in draft.after],
            "after_failure": AFTER_FAILURE[draft.after_failure],
            "failure": _failure(draft, noted),
            "attempts": max(1, draft.attempts) if draft.retry else draft.attempts,
            "retry": draft.retry,
            "first_failed_us": draft.first_failed_us,
            "failed_us": draft.failed_us,
            "accepted_us": draft.accepted_us,
        }
        for n, draft in enumerate(drafts, start=1)
        if _is_rich(draft)
    ]
    return msgspec.json.encode(rich).decode() if rich else None


def _is_rich(draft: Draft) -> bool:
    return bool(draft.after) or draft.failure is not None or draft.accepted_us is not None


def _failure(draft: Draft, noted: dict[str, str]) -> Any:
    if draft.failure is None:
        return None
    if draft.retry:
        why, policy = Why.FAILED_ELSEWHERE, draft.policy or ""
        return move_of(0, 0, Move(Status.PENDING, why, delay=draft.delay, failure=draft.failure, policy=policy), noted)
    return move_of(0, 0, Move(Status.FAILED, Why.COLLECTED, failure=draft.failure, policy=draft.policy or ""), noted)


def canonical(letter_id: str) -> str:
    """Return *letter_id* as every store writes it; raise LetterNotFound for what cannot be one."""
    try:
        return str(uuid.UUID(letter_id))
    except ValueError:
        raise LetterNotFound(letter_id) from None


def receipts_of(drafts: Sequence[Draft], duplicates: Sequence[Any]) -> list[Receipt]:
    """Return a receipt per draft; *duplicates* says which were not kept, by position, and what is kept instead."""
    receipts = [Receipt(draft.id) for draft in drafts]
    for position, kept in duplicates:
        receipts[position - 1] = Receipt(kept, duplicate=True)
    return receipts


def refusal(error: asyncpg.PostgresError, names: Whole = NONE) -> Exception | None:
    """Return what the server refused, in our words; None if it is not one of our refusals."""
    return refusal_of(error.sqlstate or "", str(error.detail), names)


def refusal_of(sqlstate: str, detail: str, names: Whole = NONE) -> Exception | None:
    """Do the same for an error of any driver."""
    match sqlstate:
        case "RD404":
            return LetterNotFound(detail)
        case "RD507" if detail:
            queue, most = msgspec.json.decode(detail)
            return QueueFull(unescape(queue, names), most)
    return None
