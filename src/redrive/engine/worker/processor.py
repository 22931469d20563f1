"""
The way of a letter: claim, start, outcome, settle, announce.

Owns the order of these steps in one process. Each step is a file of its own: what was claimed (`ahead`), the
slots (`capacity`), letters that run alone (`suspects`), decisions (`deciding`), the store (`exchange`).
Knows no rule (`core.decide`), no delay (`core.policy`), no SQL, and not how a handler is run (`runners`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from redrive.core.decide import Interrupted
from redrive.core.facts import Delivered, Died, StoreAway, StoreBack
from redrive.core.letter import Status
from redrive.core.why import Why
from redrive.engine.worker.budgets import Budgets
from redrive.engine.worker.deciding import Deciding
from redrive.engine.worker.exchange import Exchanges
from redrive.engine.worker.facts import facts_of
from redrive.engine.worker.faults import Faults
from redrive.engine.worker.rescue import rescue
from redrive.engine.worker.suspects import LATER, MAKE_ROOM, Suspects
from redrive.errors import StoreUnavailable
from redrive.failpoints import hit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from redrive.core.budget import BudgetRules
    from redrive.core.decide import Outcome
    from redrive.core.facts import Fact
    from redrive.core.moves import Move
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import Engine
    from redrive.engine.worker.breakers import Dependencies
    from redrive.engine.worker.capacity import Capacity, Slots
    from redrive.engine.worker.deciding import Settlement
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
        announce: Callable[[Fact], None],
        worker: str,
        lease: float,
        release: str | None = None,
        budgets: Mapping[str, BudgetRules] = MappingProxyType({}),
    ) -> None:
        self._store, self._handlers, self._engines, self._capacity = store, handlers, engines, capacity
        self._dependencies, self._clock, self._announce, self._worker = dependencies, clock, announce, worker
        self._faults = Faults(worker, announce)
        self._suspects = Suspects(handlers, clock)
        self.deciding = Deciding(handlers, self._faults, clock, release=release)
        self.exchanges = Exchanges(
            store, capacity, self._wants, deciding=self.deciding, budgets=Budgets(store, budgets),
            faults=self._faults, clock=clock, lease=lease, worker=worker,
        )  # fmt: skip
        self._seconds: defaultdict[str, float] = defaultdict(float)  # spent in handlers and not announced yet, by kind
        self._away = False
        self.held: dict[int, Claim] = {}  # what this process may settle, by place
        self.stopping = False
        self.wake = asyncio.Event()

    # ------------------------------------------------------------------ one round

    async def tick(self) -> float:
        """Do one round and return how long to rest: 0 while there is more to do."""
        exchanges = self.exchanges
        try:
            settled, exchanged = await exchanges.answer()
        except StoreUnavailable as error:
            self._store_is(away=str(error))
            return _RUN_AGAIN  # what was to be settled is kept by the exchanges
        self._store_is(away="")
        hit("processor.after_exchange")
        self._take(exchanged.claims)
        self._ask_ahead(exchanged)  # first of all: the store works while we announce, and while the handlers run
        self._conclude(settled, exchanged)
        if exchanges.under_way:
            await asyncio.sleep(0)  # lets it reach the store where tasks do not start eagerly, and yields to others
        hit("processor.before_start")
        self._start_ready()
        if exchanges.unsettled and not self._capacity.running and exchanges.under_way == 1:
            exchanges.ask()  # the handlers outran the store: let it go on without waiting for us
        hit("processor.after_start")
        await self._dependencies.report()
        return 0.0 if exchanges.under_way or exchanges.unsettled or exchanged.claims else 1.0

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
        """Ask while letters are ready to run, unless nothing is wanted or the *last* claim found nothing."""
        if not self._capacity.has_ready or self.exchanges.under_way:
            return
        if self.exchanges.unsettled or (last.claims and self._wants()):
            self.exchanges.ask()

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
            self._give_back(claims, _SHUTDOWN if self.stopping else MAKE_ROOM)
            return
        if paused := self.exchanges.paused:
            self._give_back((claim for claim in claims if claim.letter.queue in paused), _PAUSED)
            claims = [claim for claim in claims if claim.letter.queue not in paused]
        suspect = self._suspects.found_in(claims)
        if suspect is None:
            self._make_ready(claims)
            return
        self._give_back((claim for claim in claims if claim is not suspect), MAKE_ROOM)
        self._give_back_ready(MAKE_ROOM)
        self._capacity.shrink()  # where there is one suspect there are more: hold few letters with the next

    def _make_ready(self, claims: list[Claim]) -> None:
        for claim in claims:
            slots = self._capacity.by_kind[claim.letter.kind]
            if slots.breaker is None or self._dependencies.admits(slots.breaker):
                slots.ahead.ready.append(claim)
            else:
                self._give_back([claim], self._held_by(slots.breaker))

    # ------------------------------------------------------------------ running

    def _start_ready(self) -> None:
        if self._suspects.waiting is not None:
            self._start_suspect()
            return
        for slots in self._capacity.all:
            if slots.breaker is not None and self._dependencies.is_open(slots.breaker):
                self._give_back(slots.ahead.take_all(), self._held_by(slots.breaker))
        claimed = [len(slots.ahead.ready) for slots in self._capacity.all]
        for slots, claim in self._capacity.startable():
            self._start(slots, claim)
        for slots, count in zip(self._capacity.all, claimed, strict=True):
            slots.ahead.adapt(count, slots.running)

    def _start(self, slots: Slots, claim: Claim) -> None:
        handler = self._handlers[claim.letter.kind]
        ticket = (slots, claim, self._clock.monotonic())
        self._engines[handler.engine].start(handler, claim.letter, ticket, self._finished)

    def _finished(self, ticket: tuple[Slots, Claim, float], outcome: Outcome) -> None:
        slots, claim, began = ticket
        self._seconds[claim.letter.kind] += self._clock.monotonic() - began
        slots.end()
        if claim is self._suspects.running:
            self._suspects.running = None
        self.exchanges.outcomes.append((claim, outcome))
        self.wake.set()

    def _start_suspect(self) -> None:
        """Run the suspect if this process holds nothing else; give it back if that takes too long."""
        if self._capacity.running or self.exchanges.unsettled or len(self.held) > 1:
            if (late := self._suspects.out_of_patience()) is not None:
                self._give_back([late], LATER)
        elif (suspect := self._suspects.begin()) is not None:
            slots = self._capacity.by_kind[suspect.letter.kind]
            slots.begin()
            self._start(slots, suspect)

    def _held_by(self, breaker: str) -> Interrupted:
        return Interrupted(Why.HELD_BY_BREAKER.naming(repr(breaker)), wait=self._dependencies.rest(breaker))

    def _give_back(self, claims: Iterable[Claim], why: Interrupted) -> None:
        self.exchanges.outcomes.extend((claim, why) for claim in claims)

    def _give_back_ready(self, why: Interrupted) -> None:
        for slots in self._capacity.all:
            self._give_back(slots.ahead.take_all(), why)

    # ------------------------------------------------------------------ settled

    def _conclude(self, settled: list[Settlement], exchanged: Exchanged) -> None:
        """Hold what is settled no longer; learn about its dependency, and announce it."""
        for claim, move in settled:
            self._let_go(claim)
            breaker = self._handlers[claim.letter.kind].breaker
            if breaker is not None:
                self._learn(breaker, move)
        routine = getattr(self._announce, "wants_routine", True)
        for fact in facts_of(settled, exchanged.accepted, routine=routine):
            self._announce(self._completed(fact))

    def _completed(self, fact: Fact) -> Fact:
        """Add what only the processor knows: the time spent in handlers, and their names."""
        if isinstance(fact, Delivered):
            return msgspec.structs.replace(fact, seconds=self._seconds.pop(fact.kind, 0.0))
        if isinstance(fact, Died) and not fact.handler and fact.kind in self._handlers:
            return msgspec.structs.replace(fact, handler=self._handlers[fact.kind].name)
        return fact

    def _learn(self, breaker: str, move: Move) -> None:
        """Note what a letter says about the dependency it needs; learned once, after it was settled."""
        if move.to is Status.DELIVERED:
            self._dependencies.learned(breaker, succeeded=True)
        elif move.failure is not None and not move.failure.terminal:
            # A letter that can never succeed says nothing about the dependency.
            self._dependencies.learned(breaker, succeeded=False)

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
        for slots in self._capacity.all:
            if slots.queue.name in queues:
                self._give_back(slots.ahead.take_all(), _PAUSED)
        if self._suspects.waiting is not None and self._suspects.waiting.letter.queue in queues:
            self._give_back_suspect(_PAUSED)
        for engine in self._engines.values():
            engine.recall(queues, _PAUSED)

    def stop(self) -> None:
        """Claim no more; give back what has not begun."""
        self.stopping = True
        self._give_back_ready(_SHUTDOWN)
        self._give_back_suspect(_SHUTDOWN)
        self.wake.set()

    def _give_back_suspect(self, why: Interrupted) -> None:
        if (suspect := self._suspects.drop()) is not None:
            self._give_back([suspect], why)

    async def rescue(self, limit: int = 200) -> int:
        """Take back lost letters, as `decide` says; return how many, 0 if one could not be settled."""
        return await rescue(self._store, self.deciding, self._faults, self._announce, limit=limit)
