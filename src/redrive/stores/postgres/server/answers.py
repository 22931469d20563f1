"""
What is kept of a call's answer, for a caller who lost it.

Owns how little that is: ids and counts. Everything else is read again, so that what was purged is
gone, and no text has to be kept twice. Knows no call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.core.plan import Plan, Step
from redrive.stores.contract import Receipt, seq_of
from redrive.stores.postgres import rows
from redrive.stores.postgres.desk import finding, planning

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.core.letter import Letter
    from redrive.stores.contract import Claim
    from redrive.stores.postgres.server.transaction import Transaction


class KeptAnswer(NamedTuple):
    """What is kept of a result, its type, and how the result is read again."""

    kind: Any
    keep: Callable[[Any], Any]
    recall: Callable[[Transaction, Any], Awaitable[Any]]


async def _itself(_transaction: Transaction, kept: Any) -> Any:
    return kept


async def _letters(transaction: Transaction, ids: list[str]) -> list[Letter]:
    return await finding.these(transaction, ids)


async def _letter(transaction: Transaction, letter_id: str) -> Letter:
    return (await finding.these(transaction, [letter_id]))[0]


async def _step(transaction: Transaction, kept: tuple[str, tuple[str, ...], int]) -> Step:
    plan_id, acted, skipped = kept
    return Step(plan=await planning.read_plan(transaction, plan_id), acted=acted, skipped=skipped)


def _kept_step(step: Step) -> tuple[str, tuple[str, ...], int]:
    return step.plan.id, step.acted, step.skipped


def _ids(letters: list[Letter]) -> list[str]:
    return [letter.id for letter in letters]


def _id(thing: Letter | Plan) -> str:
    return thing.id


def _receipts(receipts: list[Receipt]) -> list[tuple[str, bool]]:
    return [(receipt.id, receipt.duplicate) for receipt in receipts]


async def _receipts_again(_transaction: Transaction, kept: list[tuple[str, bool]]) -> list[Receipt]:
    return [Receipt(letter_id, duplicate) for letter_id, duplicate in kept]


def _kept_claim(claim: Claim | None) -> tuple[int, int, str] | None:
    return None if claim is None else (seq_of(claim), claim.letter.token, claim.letter.worker or "")


async def _claim_again(transaction: Transaction, kept: tuple[int, int, str] | None) -> Claim | None:
    """Return the claim, unless another call has moved the letter since."""
    if kept is None:
        return None
    *place, worker = kept
    found = await transaction.rows("taken", *place)
    return next(iter(rows.claims_of(found, worker, transaction.whole)), None)


NOTHING = KeptAnswer(None, lambda result: result, _itself)
YES_OR_NO = KeptAnswer(bool, lambda result: result, _itself)
LETTERS = KeptAnswer(list[str], _ids, _letters)
LETTER = KeptAnswer(str, _id, _letter)
PLAN = KeptAnswer(str, _id, planning.read_plan)
COUNTS = KeptAnswer(dict[str, int], lambda result: result, _itself)
RECEIPTS = KeptAnswer(list[tuple[str, bool]], _receipts, _receipts_again)
CLAIM = KeptAnswer(tuple[int, int, str] | None, _kept_claim, _claim_again)
STEP = KeptAnswer(tuple[str, tuple[str, ...], int], _kept_step, _step)
