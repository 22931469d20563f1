"""
Settling claims: carrying out moves, fenced by token.

Owns the end of a claim. Knows no rule: moves come from `decide`, and `core.changes` says what they do to a letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.core import changes
from redrive.core.letter import Status
from redrive.stores.memory import claiming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.core.moves import Move
    from redrive.stores.contract import Claim
    from redrive.stores.memory.transaction import Contents


def settle(contents: Contents, settlements: Sequence[tuple[Claim, Move]], token: int) -> tuple[bool, ...]:
    """Carry out each move whose claim is still held."""
    return tuple(_settle_one(contents, claim, move, token) for claim, move in settlements)


def _settle_one(contents: Contents, claim: Claim, move: Move, token: int) -> bool:
    row = claiming.held(contents, claim)
    if row is None:
        return False
    now = contents.now_us
    contents.table.change(row, replace(changes.settled(row.letter, move, now), token=token))
    if move.to is Status.FAILED and move.failure is not None:
        contents.table.note_failure(move.failure, now)
    return True
