"""
What one process holds of the queue.

Owns claims until the store has accepted how they end. A caller that is cancelled waits for the store's answer first,
so that no claim is forgotten. An outcome is kept while the store is away, as long as its lease lasts. Also owns the
sign of life that renews the leases. Announces what the store accepted. Knows no callback, no cycle and no rule.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from redrive.core.decide import next_try
from redrive.core.policy import RetryPolicy as Policy
from redrive.engine.worker.facts import facts_of
from redrive.errors import StoreUnavailable
from redrive.sources.workflow.mapping import KIND
from redrive.stores.contract import Want, WorkerBeat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping

    from redrive.core.moves import Move
    from redrive.sources.workflow.port import Home
    from redrive.stores.contract import Claim

T = TypeVar("T")

_AGAIN = Policy(first=0.1, cap=5.0)  # when to ask a store that is away again
PATIENCE = 5.0  # seconds for which a caller that was stopped waits for the store's answer


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Return what *work* returns; if the caller is cancelled, *work* may end before the cancellation goes on."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=PATIENCE)
        if not task.cancel() and not task.cancelled():
            task.exception()  # the cancellation goes first; asyncio would complain about an error that nobody took
        raise


class Holding:
    """The claims of one process on one queue; *name* is the worker's."""

    def __init__(self, home: Home, queue: str, name: str) -> None:
        self._home, self._queue, self._name = home, queue, name
        self._claims: dict[Hashable, Claim] = {}
        self._beating = asyncio.Lock()
        self._by_hand: set[Hashable] = set()  # of these, what persons run: a cycle that ends leaves them alone

    def __bool__(self) -> bool:
        return bool(self._claims)

    @property
    def lease(self) -> float:
        """How long a claim lasts without a sign of life, in seconds."""
        return float(self._home.settings.lease_seconds)

    def of_cycles(self) -> list[Claim]:
        """Return the claims that no person runs."""
        return [claim for ref, claim in self._claims.items() if ref not in self._by_hand]

    def still(self, claims: list[Claim]) -> list[Claim]:
        """Return those of *claims* that are held."""
        return [claim for claim in claims if self._holds(claim)]

    def _holds(self, claim: Claim) -> bool:
        held = self._claims.get(claim.ref)
        return held is not None and held.token == claim.token  # it may be a newer claim on the same task

    # ------------------------------------------------------------------ claiming

    async def claim(self, limit: int) -> list[Claim]:
        """Claim up to *limit* due tasks."""
        return await unbroken(self._claim(limit))

    async def _claim(self, limit: int) -> list[Claim]:
        want = Want(self._queue, (KIND,), limit)
        claims = await self._home.store.claim([want], lease=self.lease, worker=self._name)
        self._claims |= {claim.ref: claim for claim in claims}
        return claims

    async def take(self, letter_id: str) -> Claim | None:
        """Claim one pending task now, due or not; None if it is not pending or waits for others."""
        return await unbroken(self._take(letter_id))

    async def take_by_hand(self, letter_id: str, taken: list[Claim]) -> None:
        """Claim one task as a person asked for it; *taken* gets the claim, also if the caller is cancelled."""
        await unbroken(self._take(letter_id, taken))

    async def _take(self, letter_id: str, by_hand: list[Claim] | None = None) -> Claim | None:
        claim = await self._home.store.take(letter_id, lease=self.lease, worker=self._name)
        if claim is not None:
            self._claims[claim.ref] = claim
            if by_hand is not None:
                self._by_hand.add(claim.ref)
                by_hand.append(claim)
        return claim

    # ------------------------------------------------------------------ settling

    async def settle(self, moves: list[tuple[Claim, Move]]) -> tuple[bool, ...]:
        """Carry out *moves*, announce them, and return which the store accepted; the claims are not held any more."""
        accepted = await self._ended([claim for claim, _ in moves], lambda: self._home.store.settle(moves))
        self._announce(moves, accepted)
        return accepted

    async def settle_counted(self, claim: Claim, move: Move, amounts: Mapping[str, int]) -> bool:
        """Carry out *move* and add *amounts* to the queue's lifetime numbers, or neither; announce it."""
        store, queue = self._home.store, self._queue
        accepted = await self._ended([claim], lambda: store.settle_counted(claim, move, queue, amounts))
        self._announce([(claim, move)], (accepted,))
        return accepted

    async def _ended(self, claims: list[Claim], ask: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._answered(ask)
        finally:
            self._forget(claims)

    def _announce(self, moves: list[tuple[Claim, Move]], accepted: tuple[bool, ...]) -> None:
        for fact in facts_of(moves, accepted):
            self._home.hub(fact)

    async def _answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask again while the store is away; once the leases have ended, other processes take the tasks back."""
        clock, failures = self._home.clock, 0
        end = clock.monotonic() + self.lease
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                failures += 1
                rest = next_try(failures, _AGAIN, clock.draw()).delay
                if clock.monotonic() + rest >= end:
                    raise
            await clock.sleep(rest)

    def _forget(self, claims: list[Claim]) -> None:
        for claim in claims:
            if self._holds(claim):
                del self._claims[claim.ref]
                self._by_hand.discard(claim.ref)

    # ------------------------------------------------------------------ signs of life

    async def extend(self, takes_more: Callable[[], bool]) -> None:
        """Give a sign of life and renew the leases; *takes_more* says whether this process runs cycles now."""
        await unbroken(self._extend(takes_more))  # one that arrives late would undo `leave`

    async def _extend(self, takes_more: Callable[[], bool]) -> None:
        async with self._beating:  # of two on their way, the older one could arrive last
            held = list(self._claims.values())
            kinds, queues = ((KIND,), (self._queue,)) if takes_more() else ((), ())
            beat = WorkerBeat(name=self._name, kinds=kinds, queues=queues, in_flight=len(held))
            self._forget(await self._home.store.extend(beat, held, lease=self.lease))

    async def leave(self) -> None:
        """Sign off."""
        await self._home.store.leave(self._name)
