"""
Settling and claiming in one round trip.

Owns one exchange with the server: in one transaction or, when there is much to settle, in two at once; and what is
asked again after an answer was lost (`lost_answers`). Knows no rule: the server fences every settlement.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redrive.core.priority_shares import SHARES
from redrive.errors import StoreError
from redrive.stores.contract import Exchanged
from redrive.stores.postgres import rows, shared_state
from redrive.stores.postgres.claiming import Claimer
from redrive.stores.postgres.lost_answers import UnansweredCalls, UnansweredSettlements
from redrive.stores.postgres.server.transaction import new_call
from redrive.stores.postgres.settling import NOTHING, asked_of, is_keyed
from redrive.stores.postgres.texts import name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from redrive.core.moves import Move
    from redrive.stores.contract import Claim, Want
    from redrive.stores.postgres.lost_answers import Settlement
    from redrive.stores.postgres.server.calls import Calls
    from redrive.stores.postgres.server.transaction import Transaction

_NO_CLAIM = ("[]", 0.0, "", list(SHARES), False)  # the arguments of an exchange that claims nothing
_MANY = 100  # settlements that are worth a connection of their own


async def settle_counted(
    transaction: Transaction, claim: Claim, move: Move, counters: str, amounts: Mapping[str, int]
) -> bool:
    """Carry out *move* and add *amounts* to the counters, unless the claim is no longer held."""
    asked = asked_of([(claim, move)], transaction.noted)
    settled = (new_call(), False, asked.keyed, asked.refs, asked.tokens, asked.moves)
    if await transaction.rows("exchange", *settled, *_NO_CLAIM, *transaction.now):  # a row says that it was refused
        return False
    await shared_state.add_up(transaction, counters, amounts)
    return True


class Exchanger:
    """Settles and claims for every worker of this process."""

    def __init__(self, calls: Calls, *, hints: bool) -> None:
        self._calls = calls
        self._claimer = Claimer(hints=hints)
        self._unanswered = UnansweredCalls()
        self._unsettled = UnansweredSettlements()

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[bool, ...]:
        """Carry out each move whose claim still holds."""
        return (await self._ask(new_call(), settlements, (), 0.0, "", again=False)).accepted

    async def exchange(
        self, settlements: Sequence[Settlement], wants: Sequence[Want], lease: float, worker: str
    ) -> Exchanged:
        """Settle and claim."""
        many = len(settlements) >= _MANY and wants and not is_keyed(settlements)
        if many and worker not in self._unanswered:
            return await self._apart(settlements, wants, lease, worker)
        call, again = self._unanswered.next(worker)
        try:
            return await self._ask(call, settlements, wants, lease, worker, again=again)
        except BaseException:  # cancelled too: the server may have done it
            self._unanswered.note(worker, call)
            raise

    async def _apart(
        self, settlements: Sequence[Settlement], wants: Sequence[Want], lease: float, worker: str
    ) -> Exchanged:
        """Settle on one connection while another claims: the server uses two of its cores."""
        calls = [new_call(), new_call()]
        claiming = asyncio.ensure_future(self._ask(calls[1], (), wants, lease, worker, again=False))
        try:
            settled = await self._ask(calls[0], settlements, (), 0.0, worker, again=False)
            claims = await self._claimed(claiming, calls[1], wants, lease, worker)
        except BaseException:  # the next exchange learns what was settled, and brings what was claimed
            claiming.cancel()
            await asyncio.gather(claiming, return_exceptions=True)
            self._unanswered.note(worker, *calls)
            self._unsettled.note(settlements, calls[0])
            raise
        return Exchanged(settled.accepted, claims)

    async def _claimed(
        self, claiming: Awaitable[Exchanged], call: int, wants: Sequence[Want], lease: float, worker: str
    ) -> list[Claim]:
        """Return what the other connection claimed; claim once more if it was nothing: by now there may be room."""
        try:
            if claims := (await claiming).claims:
                return claims
            call = new_call()
            return (await self._ask(call, (), wants, lease, worker, again=False)).claims
        except StoreError:  # the settlements hold; the next exchange finds out whether the server is away
            self._unanswered.note(worker, call)
            return []

    async def _ask(
        self,
        call: int,
        settlements: Sequence[Settlement],
        wants: Sequence[Want],
        lease: float,
        worker: str,
        *,
        again: bool,
    ) -> Exchanged:
        noted: dict[str, str] = {}
        asked = asked_of(settlements, noted) if settlements else NOTHING
        asking = self._claimer.ask(wants)
        settled = (asked.keyed, asked.refs, asked.tokens, asked.moves)
        claimed = (asking.wants, lease, name(worker, noted), asking.shares, asking.again)

        async def work(connection: Any, retried: bool) -> list[Any]:  # noqa: FBT001 - every work is called like this
            arguments = (call, again or retried, *settled, *claimed, *self._calls.now())
            return await self._calls.fetch(connection, "exchange", *arguments)

        try:
            found = await self._calls.ask(work, noted=noted)
        except BaseException:  # it may have been done
            self._unsettled.note(settlements, call)
            raise
        if settlements or found:
            self._calls.counted()
        refused = [-row[0] for row in found if row[0] < 0]
        rest = found[len(refused) :]
        claims = rows.claims_of(rest, worker, await self._calls.whole(rows.rich(rest)))
        if self._unsettled:
            refused = await self._still_refused(settlements, refused)
        if wants:
            self._claimer.took(asking, claims)
        return Exchanged(asked.accepted(settlements, refused), claims)

    async def _still_refused(self, settlements: Sequence[Settlement], refused: list[int]) -> list[int]:
        """Return those of *refused* that no earlier call settled whose answer was lost."""
        asked = self._unsettled.of(settlements, refused)
        if asked:
            seqs, calls = [seq for seq, _ in asked], [call for _, call in asked]
            found = await self._calls.ask(lambda connection, _: self._calls.fetch(connection, "done", seqs, calls))
            refused = list(set(refused) - {row[0] for row in found})
        self._unsettled.forget(settlements)
        return refused
