"""
Claims: what is asked for, and from where.

Owns the turns among priorities and the hints: where in the line of due letters this process
claimed last. A claim that begins there does not walk over the remains of letters claimed
before, which pile up while somebody holds a transaction open. A hint is never the truth: a
claim that comes back short looks at the whole line, and so does one claim a second.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.core.priority_shares import TURNS
from redrive.stores.postgres.texts import name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.stores.contract import Claim, Want

_EVERY = 1.0  # seconds between two looks at the whole line
_DEAR = 0.05  # seconds: a look that takes longer is not taken just because a claim came back short
_SHARE = 20  # looks at the whole line may take a twentieth of the time

Line = tuple[str, str, int]  # queue, kind, priority


class Taker:
    """Remembers, per process, whose turn it is and where it claimed last."""

    def __init__(self, *, hints: bool = True) -> None:
        self._hints = hints
        self._turn = 0
        self._newest: dict[Line, int] = {}  # when the newest letter claimed was due, in microseconds
        self._whole_at = self._short_at = 0.0  # when the whole line is looked at next

    def ask(self, wants: Sequence[Want]) -> Asking:
        """Return the arguments of a claim."""
        began = time.monotonic()
        whole = not self._hints or began >= self._whole_at
        asked = [
            {
                "queue": name(want.queue),
                "kinds": [name(kind) for kind in want.kinds],
                "most": want.limit,
                "generation": want.generation,
                "sinces": [None if whole else since for since in self._sinces(want)],
            }
            for want in wants
            if want.limit > 0 and want.kinds
        ]
        turns = [*TURNS[self._turn :], *TURNS[: self._turn]]
        return Asking(msgspec.json.encode(asked).decode(), turns, whole, began >= self._short_at, began)

    def _sinces(self, want: Want) -> list[int | None]:
        return [self._newest.get((want.queue, kind, priority)) for kind in want.kinds for priority in range(3)]

    def took(self, asking: Asking, claims: list[Claim]) -> None:
        """Note what came of a claim, and put it in order: the server gives it as it stands in the table."""
        now = time.monotonic()
        if asking.whole:
            dear = (now - asking.began) * _SHARE
            self._whole_at = now + max(_EVERY, dear)
            self._short_at = now + dear if now - asking.began > _DEAR else 0.0
        self._turn = (self._turn + len(claims)) % len(TURNS)
        claims.sort(key=_order)
        if self._hints:
            self._newest.update(
                ((letter.queue, letter.kind, letter.priority), letter.due_us)
                for letter in (claim.letter for claim in claims)
            )


class Asking(msgspec.Struct, frozen=True):
    """The arguments of one claim."""

    wants: str
    turns: list[int]
    whole: bool
    again: bool  # whether a short claim may look at the whole line
    began: float


def _order(claim: Claim) -> tuple[Any, ...]:
    letter = claim.letter
    return letter.priority, letter.due_us, claim.ref
