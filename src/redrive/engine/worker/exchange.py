"""
Exchanges with the store that overlap with the handlers.

Owns outcomes until the store has accepted them, and the exchanges under way: each settles what has ended and
claims what is lacking, and the next one may begin before the handlers have run. Nothing is dropped when an
exchange is cancelled or the store is away. Knows no rule, no handler, and not what to claim.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from redrive.engine.eager_start import begin
from redrive.engine.worker.faults import NO_LETTERS
from redrive.failpoints import hit
from redrive.stores.contract import Exchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from redrive.core.decide import Interrupted, Outcome
    from redrive.engine.clock import Clock
    from redrive.engine.worker.budgets import Budgets
    from redrive.engine.worker.deciding import Deciding, Settlement
    from redrive.engine.worker.faults import Faults
    from redrive.engine.worker.slots.capacity import Capacity, Slots
    from redrive.stores.contract import Claim, Store, Want

    Wants = list[tuple[Slots, Want]]

_FAULT_REST = 5.0  # seconds for which slots claim nothing after their letters could not be read
_NEWEST = 0.3  # the weight of the newest exchange in the moving average of how long they take


class _Asked(NamedTuple):
    """An exchange under way, what it claims for which slots, and which queues were paused since it began."""

    exchange: asyncio.Task[tuple[list[Settlement], Exchanged]]
    wants: Wants
    paused: set[str]
    taken: list[Settlement]  # what it took to the store


class Exchanges:
    """The exchanges of one process with its store, answered in the order in which they began."""

    def __init__(
        self,
        store: Store,
        capacity: Capacity,
        wants: Callable[[], Wants],
        *,
        deciding: Deciding,
        budgets: Budgets,
        faults: Faults,
        clock: Clock,
        lease: float,
        worker: str,
    ) -> None:
        self._store, self._capacity, self._wants, self._deciding = store, capacity, wants, deciding
        self._budgets, self._faults, self._clock = budgets, faults, clock
        self._lease, self._worker = lease, worker
        self._asked: deque[_Asked] = deque()  # the oldest first
        self._taken: list[Settlement] = []  # by the exchange that was answered last
        self._decided: list[Settlement] = []  # the store was away when they were to be settled
        self.outcomes: list[tuple[Claim, Outcome]] = []  # not yet decided
        self.paused: set[str] = set()  # queues paused since the letters that came last were asked for
        self.seconds = 0.0  # that recent exchanges took, a moving average

    @property
    def under_way(self) -> int:
        """How many exchanges have begun and are not answered."""
        return len(self._asked)

    @property
    def unsettled(self) -> bool:
        """Whether there are outcomes that no exchange has taken to the store."""
        return bool(self.outcomes or self._decided)

    def pause(self, queues: Collection[str]) -> None:
        """Note that *queues* are paused now: what was asked for before may still bring their letters."""
        for asked in self._asked:
            asked.paused.update(queues)

    def give_back(self, claims: Iterable[Claim], why: Interrupted) -> None:
        """Let *claims* that have not begun return to the store with the next exchange."""
        self.outcomes.extend((claim, why) for claim in claims)

    def ask(self) -> None:
        """Begin an exchange: settle what has ended, claim what is lacking."""
        wants = self._wants()
        for slots, want in wants:
            slots.ahead.asked += want.limit
        taken: list[Settlement] = []
        exchange = begin(self._exchange([want for _, want in wants], taken), asyncio.get_running_loop())
        self._asked.append(_Asked(exchange, wants, set(), taken))

    async def answer(self) -> tuple[list[Settlement], Exchanged]:
        """Return the oldest answer; if a fault of ours prevents it, settle one by one, and claim the next time."""
        try:
            return await self._answer()
        except NO_LETTERS:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours, at some letter
            if not (self._decided or self._taken):  # no settlement is to blame
                return [], Exchanged((), await self._claim_each(error))
        return await self._settle_each()  # nothing, if they were settled with those of the exchange before

    async def _answer(self) -> tuple[list[Settlement], Exchanged]:
        """Wait for the oldest exchange; if our caller is cancelled it goes on, and is answered the next time."""
        if not self._asked:
            self.ask()
        exchange, wants, paused, taken = self._asked[0]
        if not exchange.done():
            await asyncio.wait((exchange,))  # a shield would drop what was claimed if both end in the same instant
        self._asked.popleft()
        for slots, want in wants:
            slots.ahead.asked -= want.limit
        self.paused, self._taken = paused, taken
        return exchange.result()

    async def _exchange(self, wants: list[Want], taken: list[Settlement]) -> tuple[list[Settlement], Exchanged]:
        began, settlements = self._clock.monotonic(), self._decide_all()
        taken += settlements
        try:
            if self._budgets.owes:
                await self._budgets.pay(settlements)
            exchanged = await self._store.exchange(settlements, wants, lease=self._lease, worker=self._worker)
        except BaseException:  # cancelled or refused: keep the decisions, and decide nothing twice
            self._decided = settlements + self._decided
            raise
        self.seconds += _NEWEST * (self._clock.monotonic() - began - self.seconds)
        return settlements, exchanged

    def _decide_all(self) -> list[Settlement]:
        """Decide each outcome, once; return what is to be settled, with what waited for the store."""
        hit("processor.before_decide")
        outcomes, self.outcomes = self.outcomes, []
        moves = self._deciding.moves(outcomes)
        if self._budgets.any:
            self._budgets.count(outcomes, moves)
        before, self._decided = self._decided, []
        return before + moves

    # ------------------------------------------------------------------ faults of ours

    async def _settle_each(self) -> tuple[list[Settlement], Exchanged]:
        settlements, self._decided = self._decided, []
        self._budgets.forget()
        settled: list[Settlement] = []
        try:
            settled, accepted = await self._faults.settle_each(self._store, settlements)
        finally:
            self._decided = settlements[len(settled) :] + self._decided
        return settled, Exchanged(accepted, [])

    async def _claim_each(self, error: Exception) -> list[Claim]:
        """Claim for one set of slots after the other; slots whose letters cannot be read rest, the others go on."""
        if len(self._capacity.all) == 1:
            raise error
        wants = self._wants()
        claim = partial(self._store.claim, lease=self._lease, worker=self._worker)
        claims, unread = await self._faults.claim_each(claim, [want for _, want in wants])
        for slots, want in wants:
            if want in unread:
                slots.rests_until = self._clock.monotonic() + _FAULT_REST
        return claims
