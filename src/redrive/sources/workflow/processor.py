"""
Retries in cycles.

Owns when retries run: in cycles, each of which runs the tasks that were due when it began, in parallel with a bound.
Also owns the heartbeat, the rescue of what dead processes held, and how the processor stops: what runs is stopped and
given back. Knows no delay (`core.policy`) and no rule (`core.decide`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from typing import TYPE_CHECKING, NamedTuple

from redrive.core.decide import Counted, Interrupted, Lost, decide, held_back, is_retry
from redrive.core.why import Why
from redrive.engine.worker.facts import facts_of
from redrive.errors import StoreError
from redrive.signals.log import write
from redrive.sources.workflow import mapping
from redrive.sources.workflow.breakers import Breakers, held_by
from redrive.sources.workflow.running import attempt
from redrive.stores.contract import Want, WorkerBeat

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Mapping
    from typing import Any

    from redrive.core.breaker import BreakerRules
    from redrive.core.decide import Outcome
    from redrive.core.moves import Move
    from redrive.sources.workflow.port import Home
    from redrive.sources.workflow.running import Callback, Judge
    from redrive.stores.contract import Claim

_SHUTDOWN = Interrupted(Why.SHUTDOWN)
_NOT_YET = Interrupted(Why.GIVEN_BACK)
_NEXT_CYCLE = 0.001  # seconds: an immediate retry is due after the cycle in which it failed began
_RESCUED = 200  # lost tasks that one sweep takes back


class SettledRetry(NamedTuple):
    """A retry that was settled."""

    claim: Claim
    move: Move
    outcome: Outcome
    result: Any


class RetryProcessor:
    """Runs the retries of one queue in one process."""

    def __init__(
        self,
        home: Home,
        queue: str,
        *,
        judge: Judge,
        breakers: Mapping[str, BreakerRules],
        concurrency: int,
        settled: Callable[[SettledRetry], Coroutine[None, None, None]],
    ) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.interval = 60.0  # seconds
        self.callback: Callback | None = None
        self._home, self._queue, self._judge, self._settled = home, queue, judge, settled
        self._breakers = Breakers(breakers)
        self._concurrency = concurrency
        self._held: dict[Hashable, Claim] = {}
        self._loops: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------ starting and stopping

    @property
    def is_running(self) -> bool:
        """Whether this process runs cycles."""
        return bool(self._loops)

    async def start(self, callback: Callback, interval: float) -> None:
        """Begin to run cycles; a second call changes the callback and the interval."""
        self.callback, self.interval = callback, interval
        if self._loops:
            return
        await self._beat()
        self._loops = [
            asyncio.create_task(self._every(self._cycle_time, self.cycle), name="redrive workflow cycles"),
            asyncio.create_task(self._every(self._beat_time, self._attend), name="redrive workflow heartbeat"),
        ]

    async def stop(self) -> None:
        """Stop what runs, give it back, and sign off; nothing stays in retrying."""
        loops, self._loops = self._loops, []
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        if loops:
            with contextlib.suppress(StoreError):
                await self._home.store.leave(self.name)

    def _cycle_time(self) -> float:
        return self.interval

    def _beat_time(self) -> float:
        return min(float(self._home.settings.lease_seconds) / 3, float(self._home.settings.sweep_seconds))

    async def _every(self, span: Callable[[], float], step: Callable[[], Coroutine[None, None, Any]]) -> None:
        clock = self._home.clock
        while True:
            began = clock.monotonic()
            try:
                await step()
            except StoreError as error:
                write("warning", "redrive.workflow.store_away", {"queue": self._queue, "why": str(error)})
            except Exception as error:  # noqa: BLE001 - a fault of ours must not end the retries
                write("error", "redrive.workflow.fault", {"queue": self._queue, "error_type": type(error).__name__})
            await clock.sleep(max(0.0, span() - (clock.monotonic() - began)))

    # ------------------------------------------------------------------ one cycle

    async def cycle(self) -> int:
        """Run every task that was due when the cycle began; return how many ran."""
        store, ran, start_us = self._home.store, 0, 0
        await self._breakers.look(store)
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                wanted = self._concurrency - len(running)
                claims = await self._claim(wanted) if wanted else []
                start_us = start_us or (claims[0].letter.updated_us if claims else 0)
                ready = [claim for claim in claims if claim.letter.due_us <= start_us]
                await self._give_back([claim for claim in claims if claim.letter.due_us > start_us], _NOT_YET)
                running |= {asyncio.create_task(self._run(claim)) for claim in ready}
                ran += len(ready)
                if not running:
                    return ran
                last = len(ready) < wanted
                done, running = await asyncio.wait(running, return_when="ALL_COMPLETED" if last else "FIRST_COMPLETED")
                for task in done:
                    task.result()
                if last:
                    return ran
        finally:
            await _cancel(running)

    async def _claim(self, limit: int) -> list[Claim]:
        want = Want(self._queue, (mapping.KIND,), limit)
        claims = await self._home.store.claim([want], lease=float(self._home.settings.lease_seconds), worker=self.name)
        self._held |= {claim.ref: claim for claim in claims}
        return claims

    async def _run(self, claim: Claim) -> None:
        """Run one task, unless its breaker holds it; a cancellation gives it back."""
        try:
            breaker = mapping.terms_of(claim.letter).breaker
            wait = await self._breakers.hold(self._home.store, breaker)
            if wait is not None:
                await self._give_back([claim], Interrupted(held_by(breaker), wait=wait))
                return
            await self.run(claim)
        except asyncio.CancelledError:
            await self._give_back([claim], _SHUTDOWN)
            raise
        finally:
            self._held.pop(claim.ref, None)

    async def run(self, claim: Claim, callback: Callback | None = None, *, is_last: bool = False) -> SettledRetry:
        """Run the callback on a claimed task and settle what came of it; *is_last*: a failure exhausts the task."""
        self._held[claim.ref] = claim
        try:
            chosen = callback or self.callback
            assert chosen is not None  # noqa: S101 - the queue asks for it first
            outcome, result = await attempt(chosen, claim.letter, self._judge)
        except asyncio.CancelledError:
            if callback is not None:  # a cycle gives back by itself
                await self._give_back([claim], _SHUTDOWN)
            raise
        done = SettledRetry(claim, self._decide(claim, outcome, is_last=is_last), outcome, result)
        await asyncio.shield(self._conclude(done))
        return done

    def _decide(self, claim: Claim, outcome: Outcome, *, is_last: bool = False) -> Move:
        letter = claim.letter
        counters = Counted(1_000_000) if is_last else claim

        def choose(failure: Any) -> Any:
            return mapping.policy_after(letter, failure)

        move = decide(counters, outcome, choose, self._home.clock.draw(), age=claim.age)
        return held_back(move, _NEXT_CYCLE) if is_retry(move) else move

    async def _conclude(self, done: SettledRetry) -> None:
        store = self._home.store
        [accepted] = await store.settle([(done.claim, done.move)])
        self._held.pop(done.claim.ref, None)
        self._announce([(done.claim, done.move)], (accepted,))
        if accepted:
            await self._breakers.learn(store, mapping.terms_of(done.claim.letter).breaker, done.outcome)
            await self._settled(done)

    async def _give_back(self, claims: list[Claim], why: Interrupted | Lost) -> None:
        if not claims:
            return
        moves = [(claim, self._decide(claim, why)) for claim in claims]
        accepted = await asyncio.shield(self._home.store.settle(moves))
        for claim in claims:
            self._held.pop(claim.ref, None)
        self._announce(moves, accepted)

    def _announce(self, moves: list[tuple[Claim, Move]], accepted: tuple[bool, ...]) -> None:
        for fact in facts_of(moves, accepted):
            self._home.hub(fact)

    # ------------------------------------------------------------------ heartbeat and rescue

    async def _attend(self) -> None:
        await self._beat()
        await self.rescue()

    async def _beat(self) -> None:
        held = list(self._held.values())
        beat = WorkerBeat(name=self.name, kinds=(mapping.KIND,), queues=(self._queue,), in_flight=len(held))
        for lost in await self._home.store.extend(beat, held, lease=float(self._home.settings.lease_seconds)):
            self._held.pop(lost.ref, None)

    async def rescue(self) -> int:
        """Take back the tasks of this queue whose process died; return how many."""
        expired = await self._home.store.expired(_RESCUED)
        mine = [claim for claim in expired if (claim.letter.queue, claim.letter.kind) == (self._queue, mapping.KIND)]
        for claim in mine:
            await self._give_back([claim], Lost(Why.WORKER_DIED.naming(str(claim.letter.worker))))
        return len(mine)


async def _cancel(running: set[asyncio.Task[None]]) -> None:
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
