"""
A worker: the loops around a processor.

Owns when things happen: rounds, heartbeats, sweeps, reading breakers and pauses, plans, and how a worker stops. What
its duties do stands in `duties`. Knows no letter: the processor does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from redrive.core.facts import Abandoned, WorkerStarted, WorkerStopped
from redrive.engine.switch_interval import quick_switching
from redrive.engine.worker.duties.broadcast import Spreader
from redrive.engine.worker.duties.plans import PlanCarrier
from redrive.engine.worker.duties.repeating import Repeating
from redrive.engine.worker.duties.sweeping import Sweeper
from redrive.engine.worker.faults import Faults
from redrive.engine.worker.slots.run_times import LONGEST_WAIT
from redrive.errors import StoreError, StoreUnavailable, WorkerExhausted
from redrive.stores.contract import WorkerBeat
from redrive.stores.waiting import left_waiting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from redrive.core.facts import Fact
    from redrive.engine.clock import Clock
    from redrive.engine.runners.contract import Engine
    from redrive.engine.worker.breakers import Dependencies
    from redrive.engine.worker.processor import Processor
    from redrive.engine.worker.slots.capacity import Capacity
    from redrive.engine.worker.slots.open_kinds import OpenKinds
    from redrive.stores.contract import Retention, Store

_GLANCE = 1.0  # seconds between two reads of breakers and pauses
_AWAY = 0.5  # seconds until a store that is away at the start is asked again
_OTHERS = 0.05  # seconds between two checks of what other workers hold: no wake-up comes when that ends
_EXHAUSTED = (
    "the worker stopped: too many of its threads hang in handlers that ran out of time; "
    "start it again, and add timeouts to the calls that these handlers wait for"
)
_NAMED = 20  # kinds that are named when letters are left
_LAST_WORDS = 1.0  # seconds after the drain in which a store that is away may come back for the last outcomes


class Worker:
    """Runs a processor until it is stopped, or until nothing is left to do."""

    def __init__(
        self,
        name: str,
        store: Store,
        processor: Processor,
        engines: Mapping[str, Engine],
        capacity: Capacity,
        dependencies: Dependencies,
        *,
        open_kinds: OpenKinds,
        clock: Clock,
        announce: Callable[[Fact], None],
        lease: float,
        sweep: float,
        poll: float,
        drain: float,
        retention: Retention,
    ) -> None:
        self.name = name
        self._store, self._processor, self._engines, self._capacity = store, processor, engines, capacity
        self._dependencies, self._clock, self._announce = dependencies, clock, announce
        self._lease, self._sweep_every, self._poll, self._drain = lease, sweep, poll, drain
        self._open_kinds = open_kinds
        self._stopped = asyncio.Event()
        self._spreader = Spreader(store, announce, poll=poll, idle=sweep)
        self._plans = PlanCarrier(store, name, announce, clock)
        self._repeating = Repeating(clock, Faults(name, announce), sweep)
        self._sweeper = Sweeper(
            name, store, processor, announce, lease=lease, retention=retention, meet_kinds=self._meet_kinds
        )
        self._broken: BaseException | None = None

    @property
    def _kinds(self) -> tuple[str, ...]:
        return tuple(sorted(self._capacity.by_kind))

    # ------------------------------------------------------------------ running and stopping

    async def run(self, *, until_idle: bool = False) -> bool:
        """
        Work until stopped; with *until_idle* also end, with True, when nothing is left to do.

        Raise WorkerExhausted, with everything settled or given back, once too many threads hang.
        """
        await self._first_beat()
        self._announce(WorkerStarted(worker=self.name, kinds=self._kinds))
        left: tuple[str, ...] = ()
        duties = [asyncio.ensure_future(duty) for duty in self._duties()]
        for duty in duties:
            duty.add_done_callback(self._duty_ended)
        try:
            with quick_switching():
                await self._rounds(until_idle=until_idle)
                await self.finish()
            left = () if self._stopped.is_set() else await self._left()  # while our heartbeat is still fresh
        except BaseException:  # cancelled, or a failure of our own: give back what we hold, blame no letter
            self.stop()
            self.stop()
            with contextlib.suppress(StoreError):
                await self.finish()
            raise
        finally:
            for duty in duties:
                duty.cancel()
            await asyncio.gather(*duties, return_exceptions=True)
            await self._sign_off()
        idle = not self._stopped.is_set()
        self._announce_abandoned()
        self._announce(WorkerStopped(worker=self.name, why=_why(idle=idle, left=left), left=left))
        if self._broken is not None:
            raise self._broken
        return idle

    async def _left(self) -> tuple[str, ...]:
        """Return what stays pending when we end, a sentence for each kind of a queue."""
        with contextlib.suppress(StoreError):
            left = await left_waiting(self._store)
            more = (f"and {len(left) - _NAMED} more kinds",) if len(left) > _NAMED else ()
            return (*(each.text for each in left[:_NAMED]), *more)
        return ()

    def _announce_abandoned(self) -> None:
        """Announce handlers that still run although they were stopped; the worker does not wait for them."""
        names = Counter(name for engine in self._engines.values() for name in engine.leftovers)
        for name, count in names.items():
            self._announce(Abandoned(worker=self.name, handler=name, count=count))

    def stop(self) -> None:
        """Claim no more, finish what runs, end. A second call stops now and gives the attempts back."""
        if self._stopped.is_set():
            for engine in self._engines.values():
                engine.interrupt()
        self._stopped.set()
        self._processor.stop()

    def _duty_ended(self, duty: asyncio.Future[None]) -> None:
        """Stop if a duty failed: a worker without its heartbeat would lose its claims."""
        if not duty.cancelled() and (error := duty.exception()) is not None:
            self._broken = error
            self.stop()

    def _duties(self) -> list[Awaitable[None]]:
        repeating = self._repeating
        return [
            repeating.every(self._lease / 3, self._beat),
            self._sweeping(),
            repeating.every(_GLANCE, repeating.surviving(self._glance)),
            repeating.again(self._listen),
            repeating.again(self._spreader.run),
            repeating.again(self._plans.run),
        ]

    async def _sweeping(self) -> None:
        """Rescue at once, because the process before this one may have died; then sweep regularly."""
        with contextlib.suppress(StoreError):
            await self._repeating.ended_by_fault(self._sweeper.rescue)
        await self._repeating.every(self._sweep_every, *map(self._repeating.surviving, self._sweeper.steps))

    # ------------------------------------------------------------------ rounds

    async def _rounds(self, *, until_idle: bool) -> None:
        with contextlib.suppress(StoreError):  # a store that does not answer holds up claims, and no sweep
            await self._dependencies.look()  # before the first claim: letters of an open breaker spend no attempt
        with contextlib.suppress(StoreError):
            await self._meet_kinds()
        while not self._stopped.is_set():
            await self._processor.gather()
            self._processor.wake.clear()
            rest = await self._processor.tick()
            if any(engine.exhausted for engine in self._engines.values()):
                self._broken = self._broken or WorkerExhausted(_EXHAUSTED)
                self.stop()
            elif rest:
                if until_idle and await self._is_idle():
                    return
                others = until_idle and self._processor.idle
                rest = await self._rest(_OTHERS if others else rest)
                await self._wait(min(rest, LONGEST_WAIT) if self._processor.holds_ready else rest)

    async def _rest(self, least: float) -> float:
        """Return how long to rest: until the next letter is due that we have room for."""
        wants = self._processor.lacking()
        with contextlib.suppress(StoreError):
            backlog = await self._store.backlog(wants) if wants else None
            if backlog is not None and backlog.next_due is not None:
                return min(backlog.next_due or 0.02, self._poll)
        return min(least, self._poll)

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._processor.wake.wait(), seconds)

    async def _listen(self) -> None:
        """Wake up when letters are put."""
        while True:
            with contextlib.suppress(StoreError):
                if await self._store.wait(60.0):
                    self._processor.came()
                    self._spreader.tell()
                    await asyncio.sleep(0)  # wake-ups that never stop must not starve the event loop
                    continue
            await self._clock.sleep(0.05)

    async def _is_idle(self) -> bool:
        if not self._processor.idle:
            return False
        with contextlib.suppress(StoreError):  # a store that is away may hold more
            if await self._meet_kinds():
                return False
            if await self._spreader.once() or await self._plans.is_left():
                return False
            await self._sweeper.fail_stranded()
            backlog = await self._store.backlog(self._capacity.every_want())
            return not backlog.runnable and not backlog.in_flight
        return False

    async def finish(self) -> None:
        """Wait for what runs, stop what takes too long, settle what the store accepts in time."""
        self._processor.stop()  # claims that still arrive are given back
        last = self._clock.monotonic() + 2 * self._drain + _LAST_WORDS
        closing = asyncio.gather(*(engine.close(self._drain) for engine in self._engines.values()))
        while not (closing.done() and (self._processor.idle or self._clock.monotonic() > last)):
            self._processor.wake.clear()
            await self._processor.tick()
            if not self._processor.idle:
                await self._wait(0.05)
            elif not closing.done():
                await asyncio.wait([closing], timeout=0.05)
        await closing

    # ------------------------------------------------------------------ duties

    async def _first_beat(self) -> None:
        """Send the first heartbeat; wait for a store that is away."""
        while not self._stopped.is_set():
            with contextlib.suppress(StoreUnavailable):
                return await self._beat()
            await self._clock.sleep(_AWAY)
        return None

    @property
    def lease(self) -> float:
        """How many seconds its claims last without a heartbeat."""
        return self._lease

    async def attend(self) -> None:
        """Do every duty once, now; tests use it instead of waiting."""
        for step in (self._beat, *self._sweeper.steps, self._glance):
            await step()
        await self._plans.once()

    async def _beat(self) -> None:
        """Send a heartbeat, and extend the claims."""
        held = list(self._processor.held.values())
        queues = tuple(self._capacity.by_kind[kind].queue.name for kind in self._kinds)
        breakers = tuple(self._capacity.by_kind[kind].breaker or "" for kind in self._kinds)
        beat = WorkerBeat(name=self.name, kinds=self._kinds, queues=queues, breakers=breakers, in_flight=len(held))
        self._processor.lost(await self._store.extend(beat, held, lease=self._lease))

    async def _sign_off(self) -> None:
        """Sign off from the store; if it is away, the lease ends by itself."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._repeating.ended_by_fault(self._leave)

    async def _leave(self) -> None:
        await self._store.leave(self.name)

    async def _glance(self) -> None:
        await self._dependencies.look()
        await self._meet_kinds()
        await self._look_for_pauses()
        self._processor.wake.set()

    async def _meet_kinds(self) -> bool:
        """Claim kinds that a handler such as `kafka.*` covers once their letters wait; tell other workers at once."""
        if not await self._open_kinds.look():
            return False
        await self._beat()
        return True

    async def _look_for_pauses(self) -> None:
        """Begin nothing more of paused queues; give back what was claimed from them."""
        if not self._processor.idle:
            paused = {state.spec.name for state in await self._store.queues() if state.paused}
            self._processor.pause(paused)


def _why(*, idle: bool, left: tuple[str, ...]) -> str:
    if not idle:
        return "stopped"
    return "nothing left that it can do" if left else "nothing left to do"
