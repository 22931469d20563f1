"""
Settling claims, as the arguments of a call.

Owns how a move is sent to the server: successes as two lists of numbers, the others as rows of
JSON. Knows no rule: moves come from `decide`, and the server fences them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redrive.core.changes import line_of
from redrive.core.letter import Status, Try
from redrive.stores.contract import seq_of
from redrive.stores.postgres.texts import escape, is_odd, is_odd_name, name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from redrive.core.moves import Move
    from redrive.stores.contract import Claim

SEARCHED = 500  # characters of an error's text in titles and attempt logs
Settlement = tuple["Claim", "Move"]
_ALL: tuple[bool, ...] = ()


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


class SettleArguments(NamedTuple):
    """Settlements as arguments, and which of them are worth asking."""

    refs: list[int]
    tokens: list[int]
    moves: str | None
    keyed: bool  # whether some may stand in a lane
    first: tuple[bool, ...]  # of two settlements of one claim only the first can hold; empty if there are no two

    def accepted(self, settlements: Sequence[Settlement], refused: Collection[int]) -> tuple[bool, ...]:
        """Return what became of each settlement."""
        if not refused and all(self.first):
            return (True,) * len(settlements)
        first = self.first or (True,) * len(settlements)
        return tuple(
            is_first and seq_of(claim) not in refused for (claim, _), is_first in zip(settlements, first, strict=True)
        )


NOTHING = SettleArguments([], [], None, keyed=False, first=())


def asked_of(settlements: Sequence[Settlement], noted: dict[str, str]) -> SettleArguments:
    """Return *settlements* as arguments; in order of place, so that two callers lock rows alike. Note long names."""
    if not settlements:
        return NOTHING
    held = sorted([(seq_of(claim), claim.letter.token) for claim, move in settlements if move.to is Status.DELIVERED])
    if len(held) == len(settlements) and len(dict(held)) == len(held):  # what nearly always happens
        refs, tokens = map(list, zip(*held, strict=True))
        return SettleArguments(refs, tokens, None, is_keyed(settlements), _ALL)
    return _asked_with_care(settlements, noted)


def _asked_with_care(settlements: Sequence[Settlement], noted: dict[str, str]) -> SettleArguments:
    first = _firsts(settlements)
    unique = sorted(
        (pair for pair, is_first in zip(settlements, first, strict=True) if is_first), key=lambda pair: seq_of(pair[0])
    )
    delivered = [claim for claim, move in unique if move.to is Status.DELIVERED]
    others = [(claim, move) for claim, move in unique if move.to is not Status.DELIVERED]
    moves = [move_of(seq_of(claim), claim.letter.token, move, noted) for claim, move in others]
    return SettleArguments(
        [seq_of(claim) for claim in delivered],
        [claim.letter.token for claim in delivered],
        msgspec.json.encode(moves).decode() if moves else None,
        is_keyed(settlements),
        first,
    )


def is_keyed(settlements: Sequence[Settlement]) -> bool:
    """Whether some may stand in a lane."""
    return any(claim.letter.key is not None for claim, _ in settlements)


def _firsts(settlements: Sequence[Settlement]) -> tuple[bool, ...]:
    """Of all settlements of one letter say which may hold: the first of the newest claim."""
    newest: dict[int, int] = {}
    for claim, _ in settlements:
        newest[seq_of(claim)] = max(claim.letter.token, newest.get(seq_of(claim), 0))
    return tuple(_takes(newest, claim) for claim, _ in settlements)


def _takes(newest: dict[int, int], claim: Claim) -> bool:
    holds = newest.get(seq_of(claim)) == claim.letter.token
    if holds:
        del newest[seq_of(claim)]
    return holds


def move_of(ref: int, token: int, move: Move, noted: dict[str, str]) -> MoveRow:
    """Return *move* in the server's terms; long names are *noted*."""
    failure = move.failure
    plain = {
        "ref": ref, "token": token, "to": str(move.to), "why": escape(move.why),
        "delay": round(move.delay * 1e6), "uncount": int(not move.counts), "loss": int(move.loss),
    }  # fmt: skip
    if failure is None:
        return MoveRow(**plain, policy=escape(move.policy), odd=is_odd(move.why + move.policy))  # type: ignore[arg-type]
    told = (
        move.why, failure.message, move.policy, failure.release or "", failure.rule, failure.place, failure.traceback,
    )  # fmt: skip
    odd = any(map(is_odd, told)) or is_odd_name(failure.error_type) or is_odd_name(failure.fingerprint)
    return MoveRow(
        **plain,  # type: ignore[arg-type]
        failed=True,
        odd=odd,
        category=str(failure.category),
        error_type=name(failure.error_type, noted),
        error=escape(failure.message),
        fingerprint=name(failure.fingerprint, noted),
        title=escape(failure.template or failure.message[:SEARCHED]),
        policy=escape(move.policy),
        release=escape(failure.release),
        line=_line(move),
    )


def _line(move: Move) -> Try:
    line = line_of(move)
    texts = {field: escape(getattr(line, field)) for field in ("why", "error", "rule", "policy", "place", "traceback")}
    return msgspec.structs.replace(line, error_type=name(line.error_type), **texts)
