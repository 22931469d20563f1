"""
What is kept of an operator's call, for a caller who lost its answer.

Owns how little that is: ids and counts. Everything else is read again, so that what was purged is
gone, and no text has to be kept twice. Knows no call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from redrive.core.plan import Plan, Step
from redrive.stores.contract import Receipt
from redrive.stores.postgres import acting, finding

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redrive.core.letter import Letter
    from redrive.stores.postgres.server.transaction import Transaction


class KeptAnswer(NamedTuple):
    """What is kept of a result, of which type it is, and how the result is told again."""

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
    return Step(plan=await acting.read_plan(transaction, plan_id), acted=acted, skipped=skipped)


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


NOTHING = KeptAnswer(None, lambda result: result, _itself)
YES_OR_NO = KeptAnswer(bool, lambda result: result, _itself)
LETTERS = KeptAnswer(list[str], _ids, _letters)
LETTER = KeptAnswer(str, _id, _letter)
PLAN = KeptAnswer(str, _id, acting.read_plan)
COUNTS = KeptAnswer(dict[str, int], lambda result: result, _itself)
RECEIPTS = KeptAnswer(list[tuple[str, bool]], _receipts, _receipts_again)
STEP = KeptAnswer(tuple[str, tuple[str, ...], int], _kept_step, _step)
