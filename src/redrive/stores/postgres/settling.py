"""
Settling claims, as the arguments of a call.

Owns how a move is told to the server: successes as two lists of numbers, the others as rows of
JSON. Knows no rule: moves come from `decide`, and the server fences them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redrive.core.letter import Status, Try
from redrive.stores.postgres.texts import escape, is_odd

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from redrive.core.moves import Move
    from redrive.stores.contract import Claim

SEARCHED = 500  # characters of an error's text in titles and attempt logs
_ref = lambda claim: claim.ref  # noqa: E731 - a sort key


class MoveRow(msgspec.Struct, frozen=True, kw_only=True):
    """One move, in the server's terms."""

    ref: int
    token: int
    to: str
    why: str
    delay: int  # microseconds
    uncount: int
    loss: int
    failed: bool = False
    odd: bool = False
    category: str | None = None
    error_type: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    title: str | None = None
    policy: str | None = None
    release: str | None = None
    line: Try | None = msgspec.field(name="try", default=None)  # the server adds which attempt, and when


class Asked(NamedTuple):
    """Settlements as arguments, and which of them are worth asking."""

    refs: list[int]
    tokens: list[int]
    moves: str | None
    keyed: bool  # whether some may stand in a lane
    first: tuple[bool, ...]  # of two settlements of one claim only the first can hold

    def accepted(self, settlements: Sequence[tuple[Claim, Move]], refused: Collection[int]) -> tuple[bool, ...]:
        """Return what became of each settlement."""
        if not refused and all(self.first):
            return (True,) * len(settlements)
        return tuple(
            first and claim.ref not in refused for (claim, _), first in zip(settlements, self.first, strict=True)
        )


NOTHING = Asked([], [], None, keyed=False, first=())


def asked_of(settlements: Sequence[tuple[Claim, Move]]) -> Asked:
    """Return *settlements* as arguments; in order of place, so that two callers lock rows alike."""
    if not settlements:
        return NOTHING
    unique = {(claim.ref, claim.letter.token): (claim, move) for claim, move in reversed(settlements)}
    kept = {id(move) for _, move in unique.values()} if len(unique) < len(settlements) else None
    first = (True,) * len(settlements) if kept is None else _firsts(settlements)
    delivered = sorted((claim for claim, move in unique.values() if move.to is Status.DELIVERED), key=_ref)
    others = sorted(
        ((claim, move) for claim, move in unique.values() if move.to is not Status.DELIVERED), key=lambda pair: pair[0].ref
    )
    moves = [move_of(claim.ref, claim.letter.token, move) for claim, move in others]
    return Asked(
        [claim.ref for claim in delivered],
        [claim.letter.token for claim in delivered],
        msgspec.json.encode(moves).decode() if moves else None,
        any(claim.letter.key is not None for claim, _ in settlements),
        first,
    )


def _firsts(settlements: Sequence[tuple[Claim, Move]]) -> tuple[bool, ...]:
    seen: set[tuple[int, int]] = set()
    first = []
    for claim, _ in settlements:
        name = claim.ref, claim.letter.token
        first.append(name not in seen)
        seen.add(name)
    return tuple(first)


def move_of(ref: int, token: int, move: Move) -> MoveRow:
    """Return *move* in the server's terms."""
    failure = move.failure
    plain = {
        "ref": ref, "token": token, "to": str(move.to), "why": escape(move.why),
        "delay": round(move.delay * 1e6), "uncount": int(not move.counts), "loss": int(move.loss),
    }  # fmt: skip
    if failure is None:
        return MoveRow(**plain, odd=is_odd(move.why))  # type: ignore[arg-type]
    told = (move.why, failure.category, failure.error_type, failure.message, failure.fingerprint, move.policy,
            failure.release or "", failure.rule, failure.template)  # fmt: skip
    return MoveRow(
        **plain,  # type: ignore[arg-type]
        failed=True,
        odd=any(map(is_odd, told)),
        category=str(failure.category),
        error_type=escape(failure.error_type),
        error=escape(failure.message),
        fingerprint=escape(failure.fingerprint),
        title=escape(failure.template or failure.message[:SEARCHED]),
        policy=escape(move.policy),
        release=escape(failure.release),
        line=_line(move),
    )


def _line(move: Move) -> Try:
    failure = move.failure
    assert failure is not None  # noqa: S101 - only a move with a failure has a line
    return Try(
        attempt=0,
        at=0.0,
        why=escape(move.why),
        error_type=escape(failure.error_type),
        error=escape(failure.message[:SEARCHED]),
        category=str(failure.category),
        rule=escape(failure.rule),
        delay=move.delay,
        draw=move.draw,
        policy=escape(move.policy),
    )
