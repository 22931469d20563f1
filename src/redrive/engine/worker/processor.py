"""
The way of a letter: claim, start, outcome, settle, announce.

Owns the order of these steps in one process. Each step is a file of its own: what was claimed (`ahead`), the
slots (`capacity`), letters that run alone (`suspects`), decisions (`deciding`), the store (`exchange`) and when it is
asked (`gathering`).
Knows no rule (`core.decide`), no delay (`core.policy`), no SQL, and not how a handler is run (`runners`).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING

from redrive.core.decide import Interrupted
from redrive.core.facts import StoreAway, StoreBack
from redrive.core.policy.backoffs import Backoffs
from redrive.core.why import Why
from redrive.engine.runners.contract import HandsOver
from redrive.engine.unknown_backoffs import UnknownBackoffs
from redrive.engine.worker.budgets import Budgets
from redrive.engine.worker.deciding import Deciding
from redrive.engine.worker.duties.rescue import rescue
from redrive.engine.worker.exchange import Exchanges
from redrive.engine.worker.facts import completed, facts_of
from redrive.engine.worker.faults import Faults
from redrive.engine.worker.gathering import Gathering
from redrive.engine.worker.slots.capacity import Together
from redrive.engine.worker.slots.run_times import LONGEST_WAIT
from redrive.engine.worker.suspects import LATER, MAKE_ROOM, Suspects
from redrive.errors import StoreUnavailable
from redrive.failpoints import hit

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping

    from redrive.core.budget import BudgetRules
    from redrive.core.decide import Outcome
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
_TOO_SLOW = Interrupted(Why.WAITED_TOO_LONG)
_BURST = 250  # letters that may start before the event loop has a turn: some milliseconds if none of them waits
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
        self._store, self._handlers, self._engines, self._capacity = store, handlers, engines, capacity
        self._dependencies, self._clock, self._announce, self._worker = dependencies, clock, announce, worker
        self._hands_over = {name: engine for name, engine in engines.items() if isinstance(engine, HandsOver)}
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
        self._seconds: defaultdict[str, float] = defaultdict(float)  # spent in handlers and not announced yet, by kind
        self._away = False
        self._context = contextvars.copy_context()  # ours: a handler's callbacks run in that of the handler
        self._burst = 0  # letters started since the event loop had a turn, at most
        self._filling = self._again = self._going_on = False
        self._fault: Exception | None = None  # of our own, and it ends the worker
        self.held: dict[Hashable, Claim] = {}  # what this process may settle, by the store's name for it
        self.stopping = False
        self.wake = asyncio.Event()

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
        if self._fault is not None:
            raise self._fault
        if exchanges.under_way or exchanges.unsettled or self._wants():
            try:
                came = await self._exchange()
            except StoreUnavailable as error:
                self._store_is(away=str(error))
                return _RUN_AGAIN  # what was to be settled is kept by the exchanges
        else:
            await asyncio.sleep(0)  # a round always lets the event loop have a turn
        hit("processor.before_start")
        self._start_ready()
        self._ask_if_outrun()
        hit("processor.after_start")
        self._give_back_late()
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

    def _ask_if_outrun(self) -> None:
        """Let the store go on without waiting for the answer under way: the handlers have outrun it."""
        waits = self._capacity.running or self._capacity.has_ready
        if self.exchanges.unsettled and not waits and self.exchanges.under_way == 1:
            self.exchanges.ask()

    @property
    def holds_ready(self) -> bool:
        """Whether a letter waits here for a slot, so that `tick` has to look again within LONGEST_WAIT."""
        return self._capacity.has_ready or any(engine.holds for engine in self._hands_over.values())

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
        if any(claim.letter.policy for claim in claims):
            claims = [claim for claim in claims if not self._held_back(claim)]
        suspect = self._suspects.found_in(claims)
        if suspect is None:
            self._make_ready(claims)
            return
        self._give_back((claim for claim in claims if claim is not suspect), MAKE_ROOM)
        self._give_back_ready(MAKE_ROOM)
        self._capacity.shrink()  # where there is one suspect there are more: hold few letters with the next

    def _held_back(self, claim: Claim) -> bool:
        """Give back a letter whose backoff function this process does not know; return whether it is one."""
        hold = self._unknown.hold(claim.letter)
        if hold is not None:
            self._give_back([claim], hold)
        return hold is not None

    def _make_ready(self, claims: list[Claim]) -> None:
        for claim in claims:
            slots = self._capacity.by_kind[claim.letter.kind]
            if slots.breaker is None or self._dependencies.admits(slots.breaker):
                slots.ahead.ready.append(claim)
            else:
                self._give_back([claim], self._held_by(slots.breaker))

    # ------------------------------------------------------------------ running

    def _start_ready(self) -> None:
        self._burst = 0
        if self._suspects.waiting is not None:
            self._start_suspect()
            return
        for slots in self._capacity.all:
            if slots.breaker is not None and self._dependencies.is_open(slots.breaker):
                self._give_back(slots.ahead.take_all(), self._held_by(slots.breaker))
        self._fill()

    def _fill(self) -> None:
        """Start what may start; a letter that ends before its start returns only asks for another turn of the loop."""
        if self._filling:
            self._again = True
            return
        self._filling = self._again = True
        try:
            while self._again:
                self._again = False
                for queue in self._capacity.queues:
                    while self._burst < _BURST and (slots := queue.next()) is not None:
                        self._start(slots, slots.ahead.ready.popleft())
        finally:
            self._filling = False
        if self._burst >= _BURST:
            self._go_on_soon()

    def _start(self, slots: Slots, claim: Claim) -> None:
        handler, now = self._handlers[claim.letter.kind], self._clock.monotonic()
        hands_over = self._hands_over.get(handler.engine)
        if hands_over is None or (share := slots.share(hands_over.share(handler))) == 1:
            self._run(slots, claim, handler, self._engines[handler.engine], now)
        else:
            self._run_together(slots, [claim, *slots.ahead.take_light(share - 1)], handler, hands_over, now)

    def _run(self, slots: Slots, claim: Claim, handler: Handler, engine: Engine, now: float) -> None:
        self._burst += 1
        slots.begin(now)
        engine.start(handler, claim.letter, (slots, claim, handler, engine, now), self._finished)

    def _finished(self, ticket: tuple[Slots, Claim, Handler, Engine, float], outcome: Outcome) -> None:
        slots, claim, handler, engine, began = ticket
        now = self._clock.monotonic()
        self._seconds[handler.kind] += now - began
        slots.end(now)
        if claim is self._suspects.running:
            self._suspects.running = None
        self.exchanges.outcomes.append((claim, outcome))
        if self._gathering.under_way:
            self._gathering.ended(claim, slots.ahead)
        self.wake.set()
        ready = slots.ahead.ready
        if ready and engine.vacant and slots.is_plain and self._burst < _BURST and ready[0].letter.kind == handler.kind:
            self._run(slots, ready.popleft(), handler, engine, now)  # next in the same task
        else:
            self._use_slot(slots)

    def _run_together(self, slots: Slots, claims: list[Claim], handler: Handler, engine: HandsOver, now: float) -> None:
        """Run letters of a quick handler one after the other in one slot."""
        self._burst += len(claims)
        slots.begin(now)
        together = Together(slots, handler, len(claims), now)
        items = [(claim.letter, (together, claim)) for claim in claims]
        engine.start_many(handler, items, self._finished_together)

    def _finished_together(self, ticket: tuple[Together, Claim], outcome: Outcome) -> None:
        together, claim = ticket
        now = self._clock.monotonic()
        self._seconds[together.handler.kind] += together.ended(now)
        self.exchanges.outcomes.append((claim, outcome))
        if self._gathering.under_way:
            self._gathering.ended(claim, together.slots.ahead)
        self.wake.set()
        if not together.left:
            self._use_slot(together.slots)

    def _use_slot(self, slots: Slots) -> None:
        """Start the next letter in the slot that became free, whichever slots of its queue have one."""
        if self._burst >= _BURST or (slots.breaker is not None and self._dependencies.is_open(slots.breaker)):
            self._go_on_soon()
        elif any(each.ahead.ready for each in slots.queue.sharing):
            self._fill()
        elif not slots.running:  # the store may have been outrun
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        """Start the next letters after the event loop has had a turn: a handler that never waits must not keep it."""
        if not self._going_on:
            self._going_on = True
            asyncio.get_running_loop().call_soon(self._go_on, context=self._context)

    def _go_on(self) -> None:
        self._going_on = False
        try:
            self._start_ready()
            self._ask_if_outrun()
        except Exception as error:  # noqa: BLE001 - the event loop would only log it; `tick` raises it
            self._fault = error
            self.wake.set()

    def _give_back_late(self) -> None:
        """Give back what has waited too long for a slot: another worker may have one."""
        before = self._clock.monotonic() - LONGEST_WAIT
        for slots in self._capacity.all:
            if slots.ahead.ready and not slots.may_start:
                late = slots.ahead.take_late(lambda claim: self.deciding.claimed_at(claim) < before)
                self._give_back(late, _TOO_SLOW)
        for engine in self._hands_over.values():
            engine.recall_late(before, _TOO_SLOW)

    def _start_suspect(self) -> None:
        """Run the suspect if this process holds nothing else and asks for nothing; give it back if that takes long."""
        asks = self.exchanges.under_way or self.exchanges.unsettled
        if self._capacity.running or asks or len(self.held) > 1:
            if (late := self._suspects.out_of_patience()) is not None:
                self._give_back([late], LATER)
        elif (suspect := self._suspects.begin()) is not None:
            self._start(self._capacity.by_kind[suspect.letter.kind], suspect)

    def _held_by(self, breaker: str) -> Interrupted:
        return Interrupted(Why.HELD_BY_BREAKER.naming(repr(breaker)), wait=self._dependencies.rest(breaker))

    def _give_back(self, claims: Iterable[Claim], why: Interrupted) -> None:
        self.exchanges.outcomes.extend((claim, why) for claim in claims)

    def _give_back_ready(self, why: Interrupted) -> None:
        for slots in self._capacity.all:
            self._give_back(slots.ahead.take_all(), why)

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
            self._announce(completed(fact, self._handlers, self._seconds))

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
        self._gathering.end()

    def _give_back_suspect(self, why: Interrupted) -> None:
        if (suspect := self._suspects.drop()) is not None:
            self._give_back([suspect], why)

    async def rescue(self, limit: int = 200) -> int:
        """Take back lost letters, as `decide` says; return how many, 0 if one could not be settled."""
        return await rescue(self._store, self.deciding, self._suspects, self._faults, self._announce, limit=limit)
