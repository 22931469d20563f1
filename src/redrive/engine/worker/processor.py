"""
The way of a letter: claim, start, outcome, settle, announce.

Owns the order of these steps in one process, and what this process holds. Each step is a file of its own: what was
claimed (`ahead`), the slots (`capacity`) and how letters start in them (`starting`), letters that run alone
(`suspects`), decisions (`deciding`), the store (`exchange`) and when it is asked (`gathering`).
Knows no rule (`core.decide`), no delay (`core.policy`), no SQL, and not how a handler is run (`runners`).
"""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import TYPE_CHECKING

from redrive.core.decide import Interrupted
from redrive.core.facts import StoreAway, StoreBack
from redrive.core.policy.backoffs import Backoffs
from redrive.core.why import Why
from redrive.engine.unknown_backoffs import UnknownBackoffs
from redrive.engine.worker.budgets import Budgets
from redrive.engine.worker.deciding import Deciding
from redrive.engine.worker.duties.rescue import rescue
from redrive.engine.worker.exchange import Exchanges
from redrive.engine.worker.facts import completed, facts_of
from redrive.engine.worker.faults import Faults
from redrive.engine.worker.gathering import Gathering
from redrive.engine.worker.starting import Starter
from redrive.engine.worker.suspects import MAKE_ROOM, Suspects
from redrive.errors import StoreUnavailable
from redrive.failpoints import hit

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping

    from redrive.core.budget import BudgetRules
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import Engine
    from redrive.engine.worker.breakers import Dependencies
    from redrive.engine.worker.deciding import Settlement
    from redrive.engine.worker.facts import Announce
    from redrive.engine.worker.slots.capacity import Capacity, Slots
    from redrive.stores.contract import Claim, Exchanged, Store, Want

_PAUSED = Interrupted(Why.QUEUE_PAUSED)
_SHUTDOWN = Interrupted(Why.SHUTDOWN)
_RUN_AGAIN = 0.05  # seconds to rest after the store was unavailable


class Processor:
    """Moves letters of one store through the handlers of one process."""

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        engines: Mapping[str, Engine],
        capacity: Capacity,
        dependencies: Dependencies,
        *,
        clock: Clock,
        announce: Announce,
        worker: str,
        lease: float,
        release: str | None = None,
        budgets: Mapping[str, BudgetRules] = MappingProxyType({}),
        backoffs: Backoffs | None = None,
    ) -> None:
        self._store, self._handlers, self._capacity = store, handlers, capacity
        self._dependencies, self._clock, self._announce, self._worker = dependencies, clock, announce, worker
        self.held: dict[Hashable, Claim] = {}  # what this process may settle, by the store's name for it
        self.stopping = False
        self.wake = asyncio.Event()
        self._faults = Faults(worker, announce)
        self._suspects = Suspects(handlers, clock)
        backoffs = backoffs or Backoffs()
        self._unknown = UnknownBackoffs(backoffs, worker, announce)
        self.deciding = Deciding(handlers, self._faults, clock, release=release, backoffs=backoffs)
        self.exchanges = Exchanges(
            store, capacity, self._wants, deciding=self.deciding, budgets=Budgets(store, budgets),
            faults=self._faults, clock=clock, lease=lease, worker=worker,
        )  # fmt: skip
        self._gathering = Gathering(capacity, self.exchanges)
        self.starter = Starter(
            handlers, engines, capacity, self.exchanges, self._gathering, dependencies=dependencies,
            suspects=self._suspects, held=self.held, claimed_at=self.deciding.claimed_at, wake=self.wake, clock=clock,
        )  # fmt: skip
        self._away = False

    # ------------------------------------------------------------------ one round

    async def gather(self) -> None:
        """Let outcomes gather for a moment before the next round, if nothing waits for it."""
        if self._may_gather and (self.exchanges.unsettled or self._wants()):
            await self._gathering.wait()

    @property
    def _may_gather(self) -> bool:
        busy = self.stopping or self._suspects.any or self.exchanges.under_way
        return not busy and self._gathering.may_go_on

    def came(self) -> None:
        """Look for new letters, which the store has now."""
        self.wake.set()
        self._gathering.came()

    async def tick(self) -> float:
        """Do one round and return how long to rest: 0 while there is more to do."""
        exchanges, came = self.exchanges, False
        if self.starter.fault is not None:
            raise self.starter.fault
        if exchanges.under_way or exchanges.unsettled or self._wants():
            try:
                came = await self._exchange()
            except StoreUnavailable as error:
                self._store_is(away=str(error))
                return _RUN_AGAIN  # what was to be settled is kept by the exchanges
        else:
            await asyncio.sleep(0)  # a round always lets the event loop have a turn
        hit("processor.before_start")
        self.starter.start_ready()
        self.starter.ask_if_outrun()
        hit("processor.after_start")
        self.starter.give_back_late()
        await self._dependencies.report()
        return 0.0 if exchanges.under_way or exchanges.unsettled or came else 1.0

    async def _exchange(self) -> bool:
        """Take in the oldest answer of the store; return whether it brought letters."""
        settled, exchanged = await self.exchanges.answer()
        self._store_is(away="")
        hit("processor.after_exchange")
        self._take(exchanged.claims)
        self._capacity.learn(self._clock.monotonic(), self.exchanges.seconds)
        self._ask_ahead(exchanged)  # first of all: the store works while we announce, and while the handlers run
        self._conclude(settled, exchanged)
        if self.exchanges.under_way:
            await asyncio.sleep(0)  # lets it reach the store where tasks do not start eagerly, and yields to others
        return bool(exchanged.claims)

    def _store_is(self, *, away: str) -> None:
        """Announce when the store goes away and when it is back; not every try in between."""
        if away and not self._away:
            self._announce(StoreAway(worker=self._worker, why=away))
        elif self._away and not away:
            self._announce(StoreBack(worker=self._worker))
        self._away = bool(away)

    @property
    def idle(self) -> bool:
        """Whether this process holds nothing, neither to run nor to settle."""
        return not (self.held or self.exchanges.unsettled or self.exchanges.under_way)

    def _ask_ahead(self, last: Exchanged) -> None:
        """Ask while letters are ready, unless outcomes may gather, nothing is wanted, or the *last* found nothing."""
        if not self._capacity.has_ready or self.exchanges.under_way or self._may_gather:
            return
        if self.exchanges.unsettled or (last.claims and self._wants()):
            self.exchanges.ask()

    @property
    def holds_ready(self) -> bool:
        """Whether a letter waits here for a slot, so that `tick` has to look again within LONGEST_WAIT."""
        return self.starter.holds_ready

    # ------------------------------------------------------------------ claiming

    def lacking(self) -> list[Want]:
        """Return what this process would claim now; nothing if it holds all that it may."""
        return [want for _, want in self._wants()]

    def _wants(self) -> list[tuple[Slots, Want]]:
        if self.stopping or self._suspects.any:
            return []
        now = self._clock.monotonic
        awake = (slots for slots in self._capacity.all if not slots.rests_until or now() > slots.rests_until)
        wants = [(slots, slots.want(self._limit(slots))) for slots in awake]
        return [(slots, want) for slots, want in wants if want is not None]

    def _limit(self, slots: Slots) -> int | None:
        if slots.breaker is not None and (limit := self._dependencies.limit(slots.breaker)) is not None:
            return limit
        return self._suspects.limit

    def _take(self, claims: list[Claim]) -> None:
        """Hold *claims*: those that may run become ready, the others go back."""
        for claim in claims:
            self.held[claim.ref] = claim
        self.deciding.claimed(claims)
        if self.stopping or self._suspects.any:  # they were asked for before we knew
            self.exchanges.give_back(claims, _SHUTDOWN if self.stopping else MAKE_ROOM)
            return
        if paused := self.exchanges.paused:
            self.exchanges.give_back((claim for claim in claims if claim.letter.queue in paused), _PAUSED)
            claims = [claim for claim in claims if claim.letter.queue not in paused]
        if any(claim.letter.policy for claim in claims):
            claims = [claim for claim in claims if not self._held_back(claim)]
        suspect = self._suspects.found_in(claims)
        if suspect is None:
            self._make_ready(claims)
            return
        self.exchanges.give_back((claim for claim in claims if claim is not suspect), MAKE_ROOM)
        self.starter.give_back_ready(MAKE_ROOM)
        self._capacity.shrink()  # where there is one suspect there are more: hold few letters with the next

    def _held_back(self, claim: Claim) -> bool:
        """Give back a letter whose backoff function this process does not know; return whether it is one."""
        hold = self._unknown.hold(claim.letter)
        if hold is not None:
            self.exchanges.give_back([claim], hold)
        return hold is not None

    def _make_ready(self, claims: list[Claim]) -> None:
        for claim in claims:
            slots = self._capacity.by_kind[claim.letter.kind]
            if slots.breaker is None or self._dependencies.admits(slots.breaker):
                slots.ahead.ready.append(claim)
            else:
                self.exchanges.give_back([claim], self._dependencies.hold(slots.breaker))

    # ------------------------------------------------------------------ settled

    def _conclude(self, settled: list[Settlement], exchanged: Exchanged) -> None:
        """Hold what is settled no longer, learn about its dependency, and announce it."""
        held = self.held
        for claim, _ in settled:
            if held.get(claim.ref) is claim:  # nearly always
                del held[claim.ref]
            else:
                self._let_go(claim)
        self._dependencies.learn(settled, self._handlers)
        for fact in facts_of(settled, exchanged.accepted, routine=self._announce.wants_routine):
            self._announce(completed(fact, self._handlers, self.starter.seconds))

    def _let_go(self, claim: Claim) -> None:
        """Hold *claim* no longer; a newer claim on the same letter stays held."""
        held = self.held.get(claim.ref)
        if held is claim or (held is not None and held.token == claim.token):
            del self.held[claim.ref]

    # ------------------------------------------------------------------ losing and stopping

    def lost(self, claims: list[Claim]) -> None:
        """Forget *claims*, which are no longer ours: do not begin them; the store will refuse what runs."""
        for claim in claims:
            self._let_go(claim)
            self._capacity.by_kind[claim.letter.kind].ahead.forget(claim)
            if claim is self._suspects.waiting:
                self._suspects.drop()

    def pause(self, queues: Collection[str]) -> None:
        """Give back what has not begun of these *queues*, which are paused now."""
        self.exchanges.pause(queues)
        self.starter.recall(queues, _PAUSED)
        if self._suspects.waiting is not None and self._suspects.waiting.letter.queue in queues:
            self._give_back_suspect(_PAUSED)

    def stop(self) -> None:
        """Claim no more; give back what has not begun."""
        self.stopping = True
        self.starter.give_back_ready(_SHUTDOWN)
        self._give_back_suspect(_SHUTDOWN)
        self.wake.set()
        self._gathering.end()

    def _give_back_suspect(self, why: Interrupted) -> None:
        if (suspect := self._suspects.drop()) is not None:
            self.exchanges.give_back([suspect], why)

    async def rescue(self, limit: int = 200) -> int:
        """Take back lost letters, as `decide` says; return how many, 0 if one could not be settled."""
        return await rescue(self._store, self.deciding, self._suspects, self._faults, self._announce, limit=limit)
