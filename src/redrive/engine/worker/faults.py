"""
Faults of our own.

Owns what a worker does when redrive itself raises where it should not: it announces the fault, fails the letter
concerned with the reason, and goes on with all other letters. A store that is away, closed or damaged is not a fault
at a letter: that passes through. Knows no rule (`core.decide`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.decide import after_fault
from redrive.core.facts import Faulted
from redrive.core.failures.describe import clean, say
from redrive.errors import SchemaMismatch, StoreClosed, StoreDamaged, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from types import TracebackType

    from redrive.core.facts import Fact
    from redrive.core.moves import Move
    from redrive.engine.worker.deciding import Settlement
    from redrive.stores.contract import Claim, Store, Want

NO_LETTERS = (StoreUnavailable, StoreClosed, StoreDamaged, SchemaMismatch)  # the store's own state
_SAID = 300  # characters of an error's text
_FRAMES = 8


class Faults:
    """Announces the faults of one worker."""

    def __init__(self, worker: str, announce: Callable[[Fact], None]) -> None:
        self._worker, self._announce = worker, announce

    def tell(self, doing: str, error: Exception, letter_id: str = "") -> None:
        """Announce what we were doing, why it failed and where."""
        frames = tuple(_frames(error.__traceback__))[-_FRAMES:]
        self._announce(Faulted(worker=self._worker, doing=doing, why=_said(error), frames=frames, id=letter_id))

    def fail(self, doing: str, error: Exception, claim: Claim) -> Move:
        """Announce *error*, a fault of our own, and return the move of the letter that met it."""
        self.tell(doing, error, claim.letter.id)
        return after_fault(_said(error))

    async def settle_each(
        self, store: Store, settlements: Sequence[Settlement]
    ) -> tuple[list[Settlement], tuple[bool, ...]]:
        """
        Settle one by one, and fail the letters that cannot be written; return what was settled, and what was accepted.

        If the store goes away in between, return what was settled so far; raise if that is nothing.
        """
        settled: list[Settlement] = []
        accepted: list[bool] = []
        for claim, move in settlements:
            try:
                done, yes = await self._settle(store, claim, move)
            except NO_LETTERS:
                if not settled:
                    raise
                break
            settled.append((claim, done))
            accepted.append(yes)
        return settled, tuple(accepted)

    async def claim_each(
        self, claim: Callable[[Sequence[Want]], Awaitable[list[Claim]]], wants: Sequence[Want]
    ) -> tuple[list[Claim], list[Want]]:
        """Claim want by want; return the claims, and the wants with a letter that cannot be read."""
        claims: list[Claim] = []
        unread: list[Want] = []
        for want in wants:
            try:
                claims += await claim([want])
            except NO_LETTERS:
                if not claims:
                    raise
                break
            except Exception as error:  # noqa: BLE001 - a fault of ours; one letter must not stop the others
                unread.append(want)
                self.tell(f"claim letters of {', '.join(want.kinds)}", error)
        return claims, unread

    async def _settle(self, store: Store, claim: Claim, move: Move) -> tuple[Move, bool]:
        """Settle one letter; if that is impossible, leave it to the sweep, which rescues it as lost."""
        try:
            return move, await self._write(store, claim, move)
        except NO_LETTERS:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours; one letter must not stop the others
            move = self.fail("settle a letter", error, claim)
        try:
            return move, await self._write(store, claim, move)
        except NO_LETTERS:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            self.tell("fail a letter that cannot be settled", error, claim.letter.id)
            return move, False

    async def _write(self, store: Store, claim: Claim, move: Move) -> bool:
        [accepted] = await store.settle([(claim, move)])
        return accepted


def _said(error: Exception) -> str:
    name, message = say(error)
    return f"{name}: {clean(message, _SAID)}"


def _frames(trace: TracebackType | None) -> Iterator[str]:
    while trace is not None:
        code = trace.tb_frame.f_code
        yield clean(f"{trace.tb_frame.f_globals.get('__name__', '?')}:{code.co_name}:{trace.tb_lineno}", _SAID)
        trace = trace.tb_next
