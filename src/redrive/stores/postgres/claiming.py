"""
Claims: what a worker asks for, how it keeps them, what is left to claim, and claims whose worker is gone.

Owns the shares of the priorities and the hints: where in the line of due letters this process claimed last. A claim
that begins there does not walk over the dead tuples of letters claimed before, which pile up while a transaction is
open. A hint may be wrong: a claim that comes back short looks at the whole line, and so does one claim a second.
Knows no settlement; `exchanging` sends a claim.
"""

from __future__ import annotations

import time
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.core.letter import age_of
from redrive.core.priority_shares import SHARES
from redrive.stores.contract import Backlog, Claim, seq_of
from redrive.stores.postgres import rows, shared_state
from redrive.stores.postgres.texts import name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.stores.contract import Want, WorkerBeat
    from redrive.stores.postgres.server.calls import Calls
    from redrive.stores.postgres.server.lease_clock import Ticker
    from redrive.stores.postgres.server.transaction import Transaction

_EVERY = 1.0  # seconds between two looks at the whole line
_DEAR = 0.05  # seconds: if a look takes longer, a claim that came back short does not repeat it
_SHARE = 20  # looks at the whole line may take a twentieth of the time

DueKey = tuple[str, str, int]  # queue, kind, priority


class Claimer:
    """Remembers, per process, which share is next and where it claimed last."""

    def __init__(self, *, hints: bool = True) -> None:
        self._hints = hints
        self._share = 0
        self._newest: dict[DueKey, int] = {}  # when the newest letter claimed was due, in microseconds
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
        shares = [*SHARES[self._share :], *SHARES[: self._share]]
        return Asking(msgspec.json.encode(asked).decode(), shares, whole, began >= self._short_at, began)

    def _sinces(self, want: Want) -> list[int | None]:
        return [self._newest.get((want.queue, kind, priority)) for kind in want.kinds for priority in range(3)]

    def took(self, asking: Asking, claims: list[Claim]) -> None:
        """Note what came of a claim, and put it in order: the server gives it as it stands in the table."""
        now = time.monotonic()
        if asking.whole:
            dear = (now - asking.began) * _SHARE
            self._whole_at = now + max(_EVERY, dear)
            self._short_at = now + dear if now - asking.began > _DEAR else 0.0
        self._share = (self._share + len(claims)) % len(SHARES)
        claims.sort(key=_order)
        if self._hints:
            for claim in claims:
                letter = claim.letter
                self._newest[letter.queue, letter.kind, letter.priority] = letter.due_us


class Asking(msgspec.Struct, frozen=True):
    """The arguments of one claim."""

    wants: str
    shares: list[int]
    whole: bool
    again: bool  # whether a short claim may look at the whole line
    began: float


_order = attrgetter("letter.priority", "letter.due_us", "ref")


# ---------------------------------------------------------------------- what a worker looks at between its rounds


async def backlog(transaction: Transaction, wants: Sequence[Want]) -> Backlog:
    """Return what is left of these queues and kinds, of the one generation that the wants have."""
    pairs = {(name(want.queue), name(kind)) for want in wants for kind in want.kinds}
    queues, kinds = [queue for queue, _ in pairs], [kind for _, kind in pairs]
    generation = wants[0].generation if wants else None
    await transaction.rows("place_arrivals", queues)  # lanes before letters: every call locks in this order
    await transaction.rows("make_sure")
    due, in_flight = await transaction.row("left", queues, kinds, transaction.now.wall, generation)
    return Backlog(due is not None, in_flight, None if due is None else max(0.0, due / 1e6))


async def extend(calls: Calls, ticker: Ticker, beat: WorkerBeat, claims: Sequence[Claim], lease: float) -> list[Claim]:
    """Record a sign of life, renew *claims* and return those that are lost, ahead of everything that waits."""
    noted: dict[str, str] = {}
    told = shared_state.told_by(beat, claims, noted)

    async def work(connection: Any, _again: bool) -> list[Any]:  # noqa: FBT001 - every work is called like this
        tick = ticker.ask(lease)
        clock, *renewed = await calls.fetch(connection, "extend", *told, *calls.now(), lease, *tick[:2])
        ticker.heard(tick, clock)
        return renewed

    found = await calls.ask(work, noted=noted, urgent=True, within=max(1.0, lease / 6))
    renewed = {row[:2] for row in map(tuple, found)}
    return [claim for claim in claims if (seq_of(claim), claim.letter.token) not in renewed]


async def some_ended(calls: Calls, ticker: Ticker) -> bool:
    """Move the clock of leases on, and return whether it has passed the end of one."""

    async def work(connection: Any, _again: bool) -> bool:  # noqa: FBT001 - every work is called like this
        tick = ticker.ask()
        [clock] = await calls.fetch(connection, "tick", tick.seen, tick.passed, calls.now().lease)
        ticker.heard(tick, clock)
        return bool(clock["over"])

    return await calls.ask(work)


async def expired(transaction: Transaction, limit: int) -> list[Claim]:
    """Return claims whose lease ended, the longest ended first."""
    found = await transaction.rows("expired", transaction.now.lease, limit)
    now_us = await transaction.now_us() if found else 0
    letters = [(row[0], rows.letter_of(row, transaction.whole)) for row in found]
    return [Claim(letter, seq, age_of(letter, now_us)) for seq, letter in letters]
