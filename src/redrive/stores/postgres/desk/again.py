"""
Letters that failed again elsewhere, and one letter that a person wants to run now.

Owns which statement a draft `again` needs: the status of the letter that has its key decides, as
`core.changes.put_again` says, and `core.following` for a policy that follows its failure. Knows no column:
`functions/again.sql` carries it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec

from redrive.core.following import move_after, renewed, used_up
from redrive.core.letter import Status
from redrive.core.moves import Move
from redrive.core.why import Why
from redrive.failpoints import hit
from redrive.stores.columns import extras_of, status_of
from redrive.stores.contract import AGAIN, Claim, Receipt
from redrive.stores.postgres import putting, rows, shared_state
from redrive.stores.postgres.desk import finding
from redrive.stores.postgres.desk.acting import lock
from redrive.stores.postgres.server.transaction import new_call
from redrive.stores.postgres.settling import move_of
from redrive.stores.postgres.texts import escape, is_odd, name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.letter import Draft
    from redrive.stores.postgres.server.transaction import Transaction


async def put(transaction: Transaction, drafts: Sequence[Draft]) -> list[Receipt]:
    """Keep *drafts* one after the other in one transaction; some of them are `again`."""
    try:
        return [await _put_one(transaction, draft) for draft in drafts]
    except asyncpg.PostgresError as error:
        if (refused := putting.refusal(error, transaction.noted)) is None:
            raise
        raise refused from None


async def _put_one(transaction: Transaction, draft: Draft) -> Receipt:
    known = await _put_again(transaction, draft) if draft.again else None
    if known is not None:
        return known
    columns = putting.columns_of([draft], transaction.noted)
    duplicates = await transaction.rows("put", new_call(), False, *columns, transaction.now.wall)  # noqa: FBT003 - not again
    if duplicates and draft.again and duplicates[0][1] != draft.id:
        return await _put_one(transaction, draft)  # another process put it just now
    if not duplicates:
        await _count(transaction, draft, _arrives(draft), draft.policy)
    return putting.receipts_of([draft], duplicates)[0]


def _arrives(draft: Draft) -> Status:
    return Status.FAILED if draft.failure is not None and not draft.retry else Status.PENDING


async def _count(transaction: Transaction, draft: Draft, status: Status, policy: str | None) -> None:
    """Add what *draft* adds to its counters when it leaves its letter so."""
    if amounts := used_up(draft, status, policy):
        hit("put.before_count")
        await shared_state.add_up(transaction, draft.counters, amounts)


async def _put_again(transaction: Transaction, draft: Draft) -> Receipt | None:
    """Let the letter that has the key learn of the newer failure; None if a new letter is to be kept."""
    texts = map(transaction.name, (draft.queue, draft.kind, draft.idempotency_key or ""))
    found = await transaction.row("same_key", *texts)
    if found is None:
        return None
    locked = await lock(transaction, [found["seq"]])
    if not locked:  # it was removed in this moment
        return None
    status = status_of(locked[0]["status"])
    if found["id"] != draft.id and status in (Status.DELIVERED, Status.ARCHIVED):
        await transaction.rows("free_key", found["seq"])
        return None
    is_known = found["id"] == draft.id or not await shared_state.handled(transaction, AGAIN, draft.id)
    if not is_known:  # a spool forwards what the store has
        await _learn(transaction, found["seq"], status, draft)
    return Receipt(found["id"], duplicate=True)


async def _learn(transaction: Transaction, seq: int, status: Status, draft: Draft) -> None:
    failure = draft.failure
    assert failure is not None  # noqa: S101 - the draft was checked
    if status is Status.IN_FLIGHT:
        await transaction.rows("newer_error", seq, escape(failure.message), is_odd(failure.message))
        return
    letter = (await finding.letters(transaction, [seq]))[seq]
    if (followed := move_after(letter, draft)) is not None:
        row = move_of(seq, 0, followed, transaction.noted)
        await transaction.rows("follow_failure", seq, msgspec.json.encode(row).decode(), transaction.now.wall)
        await _count(transaction, draft, followed.to, followed.policy)
    elif status is Status.PENDING:
        row = move_of(0, 0, Move(Status.PENDING, Why.FAILED_ELSEWHERE, failure=failure), transaction.noted)
        await transaction.rows("newer_failure", seq, msgspec.json.encode(row).decode(), transaction.now.wall)
    else:
        rich, span = putting.rich_of([draft], transaction.noted), putting.micros(draft.delay)
        told = (str(Why.FAILED_ELSEWHERE), span, draft.due_us, transaction.now.wall)
        await transaction.rows("fail_again", seq, rich, *told)
        policy = None if draft.policy is None else transaction.name(draft.policy)
        letter = msgspec.structs.replace(letter, headers=renewed(letter, draft))
        await transaction.rows("renew", seq, policy, extras_of(letter))
        await _count(transaction, draft, _arrives(draft), draft.policy)


async def take(transaction: Transaction, letter_id: str, lease: float, worker: str, waiting: bool) -> Claim | None:  # noqa: FBT001 - passed by place
    """Claim one pending letter, due or not."""
    told = (putting.canonical(letter_id), lease, name(worker), waiting, *transaction.now)
    found: list[Any] = await transaction.rows("take", *told)
    return next(iter(rows.claims_of(found, worker, transaction.whole)), None)


async def stranded(transaction: Transaction, limit: int, queue: str | None) -> list[str]:
    """Let letters go on whose `after` will not come; return those that are to fail."""
    return [row["id"] for row in await transaction.rows("stranded", limit, None if queue is None else name(queue))]
