"""
Starting letters in slots.

Owns the start of every letter that is ready, what happens when it ends, and that the event loop has a turn between
many starts. A slot that becomes free starts the next letter at once, whatever the store does. A letter that waited too
long, or whose breaker is open, goes back. Knows no store, no rule, and not how a handler is run (`runners`).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import defaultdict
from typing import TYPE_CHECKING

from redrive.core.decide import Interrupted
from redrive.core.why import Why
from redrive.engine.runners.contract import HandsOver
from redrive.engine.worker.slots.capacity import Together
from redrive.engine.worker.slots.run_times import LONGEST_WAIT
from redrive.engine.worker.suspects import LATER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sized

    from redrive.core.decide import Outcome
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import Engine
    from redrive.engine.worker.breakers import Dependencies
    from redrive.engine.worker.exchange import Exchanges
    from redrive.engine.worker.gathering import Gathering
    from redrive.engine.worker.slots.capacity import Capacity, Slots
    from redrive.engine.worker.suspects import Suspects
    from redrive.stores.contract import Claim

_TOO_SLOW = Interrupted(Why.WAITED_TOO_LONG)
_BURST = 250  # letters that may start before the event loop has a turn: some milliseconds if none of them waits


class Starter:
    """Starts the letters of one process; what became of them are `exchanges.outcomes`."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        engines: Mapping[str, Engine],
        capacity: Capacity,
        exchanges: Exchanges,
        gathering: Gathering,
        *,
        dependencies: Dependencies,
        suspects: Suspects,
        held: Sized,
        claimed_at: Callable[[Claim], float],
        wake: asyncio.Event,
        clock: Clock,
    ) -> None:
        self._handlers, self._engines, self._capacity = handlers, engines, capacity
        self._hands_over = {name: engine for name, engine in engines.items() if isinstance(engine, HandsOver)}
        self._dependencies, self._suspects = dependencies, suspects
        self._exchanges, self._gathering = exchanges, gathering
        self._held, self._claimed_at, self._wake, self._clock = held, claimed_at, wake, clock
        self._context = contextvars.copy_context()  # ours: a handler's callbacks run in that of the handler
        self._burst = 0  # letters started since the event loop had a turn, at most
        self._filling = self._again = self._going_on = False
        self.seconds: defaultdict[str, float] = defaultdict(float)  # spent in handlers and not announced yet, by kind
        self.fault: Exception | None = None  # of our own, and it ends the worker

    # ------------------------------------------------------------------ starting

    def start_ready(self) -> None:
        """Start what may start: a suspect alone, or as many letters as there are slots."""
        self._burst = 0
        if self._suspects.waiting is not None:
            self._start_suspect()
            return
        for slots in self._capacity.all:
            if slots.breaker is not None and self._dependencies.is_open(slots.breaker):
                self._exchanges.give_back(slots.ahead.take_all(), self._dependencies.hold(slots.breaker))
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

    def _run_together(self, slots: Slots, claims: list[Claim], handler: Handler, engine: HandsOver, now: float) -> None:
        """Run letters of a quick handler one after the other in one slot."""
        self._burst += len(claims)
        slots.begin(now)
        together = Together(slots, handler, len(claims), now)
        items = [(claim.letter, (together, claim)) for claim in claims]
        engine.start_many(handler, items, self._finished_together)

    def _start_suspect(self) -> None:
        """Run the suspect if this process holds nothing else and asks for nothing; give it back if that takes long."""
        asks = self._exchanges.under_way or self._exchanges.unsettled
        if self._capacity.running or asks or len(self._held) > 1:
            if (late := self._suspects.out_of_patience()) is not None:
                self._exchanges.give_back([late], LATER)
        elif (suspect := self._suspects.begin()) is not None:
            self._start(self._capacity.by_kind[suspect.letter.kind], suspect)

    # ------------------------------------------------------------------ a slot becomes free

    def _finished(self, ticket: tuple[Slots, Claim, Handler, Engine, float], outcome: Outcome) -> None:
        slots, claim, handler, engine, began = ticket
        now = self._clock.monotonic()
        self.seconds[handler.kind] += now - began
        slots.end(now)
        if claim is self._suspects.running:
            self._suspects.running = None
        self._exchanges.outcomes.append((claim, outcome))
        if self._gathering.under_way:
            self._gathering.ended(claim, slots.ahead)
        self._wake.set()
        ready = slots.ahead.ready
        if ready and engine.vacant and slots.is_plain and self._burst < _BURST and ready[0].letter.kind == handler.kind:
            self._run(slots, ready.popleft(), handler, engine, now)  # next in the same task
        else:
            self._use_slot(slots)

    def _finished_together(self, ticket: tuple[Together, Claim], outcome: Outcome) -> None:
        together, claim = ticket
        now = self._clock.monotonic()
        self.seconds[together.handler.kind] += together.ended(now)
        self._exchanges.outcomes.append((claim, outcome))
        if self._gathering.under_way:
            self._gathering.ended(claim, together.slots.ahead)
        self._wake.set()
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
            self.start_ready()
            self.ask_if_outrun()
        except Exception as error:  # noqa: BLE001 - the event loop would only log it; `tick` raises it
            self.fault = error
            self._wake.set()

    def ask_if_outrun(self) -> None:
        """Let the store go on without waiting for the answer under way: the handlers have outrun it."""
        waits = self._capacity.running or self._capacity.has_ready
        if self._exchanges.unsettled and not waits and self._exchanges.under_way == 1:
            self._exchanges.ask()

    # ------------------------------------------------------------------ giving back

    @property
    def holds_ready(self) -> bool:
        """Whether a letter waits here for a slot, in our hands or in those of an engine."""
        return self._capacity.has_ready or any(engine.holds for engine in self._hands_over.values())

    def give_back_late(self) -> None:
        """Give back what has waited too long for a slot: another worker may have one."""
        before = self._clock.monotonic() - LONGEST_WAIT
        for slots in self._capacity.all:
            if slots.ahead.ready and not slots.may_start:
                late = slots.ahead.take_late(lambda claim: self._claimed_at(claim) < before)
                self._exchanges.give_back(late, _TOO_SLOW)
        for engine in self._hands_over.values():
            engine.recall_late(before, _TOO_SLOW)

    def give_back_ready(self, why: Interrupted) -> None:
        """Give back everything that is ready."""
        for slots in self._capacity.all:
            self._exchanges.give_back(slots.ahead.take_all(), why)

    def recall(self, queues: Collection[str], why: Interrupted) -> None:
        """Give back what has not begun of these *queues*."""
        for slots in self._capacity.all:
            if slots.queue.name in queues:
                self._exchanges.give_back(slots.ahead.take_all(), why)
        for engine in self._engines.values():
            engine.recall(queues, why)
