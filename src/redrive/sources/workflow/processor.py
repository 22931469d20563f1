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

import msgspec

from redrive.core.decide import Counted, Failed, Interrupted, Lost, decide, held_back, is_retry
from redrive.core.why import Why
from redrive.engine.stranded import fail_stranded
from redrive.engine.unknown_backoffs import UnknownBackoffs
from redrive.engine.worker.facts import facts_of
from redrive.errors import StoreError
from redrive.signals.log import write
from redrive.sources.workflow import mapping
from redrive.sources.workflow.breakers import Breakers, held_by
from redrive.sources.workflow.running import attempt
from redrive.stores.contract import Want, WorkerBeat

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Mapping
    from typing import Any

    from redrive.core.breaker import BreakerRules
    from redrive.core.decide import Outcome
    from redrive.core.letter import Letter
    from redrive.core.moves import Move
    from redrive.sources.workflow.port import Home
    from redrive.sources.workflow.running import Callback, Judge
    from redrive.stores.contract import Claim

_SHUTDOWN = Interrupted(Why.SHUTDOWN)
_NOT_YET = Interrupted(Why.GIVEN_BACK)
_NEXT_CYCLE = 0.001  # seconds: an immediate retry is due after the cycle in which it failed began
_ALONE = Interrupted(Why.WAITS_TO_RUN_ALONE, wait=_NEXT_CYCLE)  # not claimed again before it is taken by its id
_RESCUED = 200  # lost tasks that one sweep takes back
_LOOKED_AT = 20_000  # lost letters of all queues among which it looks for them


class SettledRetry(NamedTuple):
    """A retry that was settled."""

    claim: Claim
    move: Move
    outcome: Outcome
    result: Any
    ran: bool = True  # False: it failed with a task that it waits for


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
        self._unknown = UnknownBackoffs(home.backoffs, self.name, home.hub)
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
                await self._sign_off()

    @contextlib.asynccontextmanager
    async def kept_alive(self) -> AsyncIterator[None]:
        """Renew the leases of what runs in the block, where no loop does that: for a cycle or a task run by hand."""
        if self._loops:
            yield
            return
        beats = asyncio.create_task(self._every(self._beat_time, self._beat_by_hand), name="redrive workflow heartbeat")
        try:
            yield
        finally:
            await _cancel({beats})
            with contextlib.suppress(StoreError):
                await self._sign_off()

    async def _sign_off(self) -> None:
        if not self._loops:
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
        await self._fail_stranded()
        await self._breakers.look(self._home.store)
        suspects: list[str] = []
        return await self._run_together(suspects) + await self._run_alone(suspects)

    async def _run_together(self, suspects: list[str]) -> int:
        """Run what is due in parallel; *suspects* gets the tasks that are to run alone, which are given back."""
        ran = start_us = 0
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                wanted, known = self._concurrency - len(running), len(suspects)
                claims = await self._claim(wanted) if wanted else []
                start_us = start_us or (claims[0].letter.updated_us if claims else 0)
                ready = await self._sorted_out(claims, start_us, suspects)
                running |= {asyncio.create_task(self._run(claim)) for claim in ready}
                ran += len(ready)
                last = len(ready) + len(suspects) - known < wanted
                if running:
                    when = "ALL_COMPLETED" if last else "FIRST_COMPLETED"
                    done, running = await asyncio.wait(running, return_when=when)
                    for task in done:
                        task.result()
                if last:
                    return ran
        finally:
            await _cancel(running)

    async def _sorted_out(self, claims: list[Claim], start_us: int, suspects: list[str]) -> list[Claim]:
        """Return the tasks that begin now; give back those of a later cycle, and those that are to run alone."""
        later = [claim for claim in claims if claim.letter.due_us > start_us]
        alone = [claim for claim in claims if claim.losses and claim not in later]
        suspects += [claim.letter.id for claim in alone if claim.letter.id not in suspects]
        await self._give_back(later, _NOT_YET)
        await self._give_back(alone, _ALONE)
        return [claim for claim in claims if claim not in later and claim not in alone]

    async def _run_alone(self, suspects: list[str]) -> int:
        """Run tasks whose last process died, one after the other: the next death then convicts only one of them."""
        ran, lease = 0, float(self._home.settings.lease_seconds)
        for letter_id in suspects:
            claim = await self._home.store.take(letter_id, lease=lease, worker=self.name)
            if claim is not None:
                self._held[claim.ref] = claim
                await self._run(claim)
                ran += 1
        return ran

    async def _fail_stranded(self) -> None:
        """Let go, or fail, tasks that wait for dead ones and said so."""
        told: dict[str, Any] = {
            "worker": self.name,
            "lease": float(self._home.settings.lease_seconds),
            "queue": self._queue,
        }
        for claim, move in await fail_stranded(self._home.store, self._home.hub, **told):
            if move.failure is not None:
                await self._settled(SettledRetry(claim, move, Failed(move.failure), None, ran=False))

    async def _claim(self, limit: int) -> list[Claim]:
        want = Want(self._queue, (mapping.KIND,), limit)
        claims = await self._home.store.claim([want], lease=float(self._home.settings.lease_seconds), worker=self.name)
        self._held |= {claim.ref: claim for claim in claims}
        return claims

    async def _run(self, claim: Claim) -> None:
        """Run one task, unless its breaker holds it; a cancellation gives it back."""
        try:
            hold = self._unknown.hold(claim.letter)
            if hold is not None:
                await self._give_back([claim], hold)
                return
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
            outcome, result = await self._attempt(chosen, claim.letter)
        except asyncio.CancelledError:
            if callback is not None:  # a cycle gives back by itself
                await self._give_back([claim], _SHUTDOWN)
            raise
        done = SettledRetry(claim, self._decide(claim, outcome, is_last=is_last), outcome, result)
        await asyncio.shield(self._conclude(done))
        return done

    async def _attempt(self, callback: Callback, letter: Letter) -> tuple[Outcome, Any]:
        tracing = self._home.tracing
        if tracing is None:
            return await attempt(callback, letter, self._judge)
        with tracing.running(letter) as ended:
            outcome, result = await attempt(callback, letter, self._judge)
            ended(outcome)
        return outcome, result

    def _decide(self, claim: Claim, outcome: Outcome, *, is_last: bool = False) -> Move:
        letter = claim.letter
        counters = Counted(1_000_000) if is_last else claim

        def choose(failure: Any) -> Any:
            return self._home.backoffs.bound(mapping.policy_after(letter, failure))

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
        await self._extend(WorkerBeat(name=self.name, kinds=(mapping.KIND,), queues=(self._queue,)))

    async def _beat_by_hand(self) -> None:
        await self._extend(WorkerBeat(name=self.name, kinds=()))  # it takes no further tasks

    async def _extend(self, beat: WorkerBeat) -> None:
        held = list(self._held.values())
        beat = msgspec.structs.replace(beat, in_flight=len(held))
        for lost in await self._home.store.extend(beat, held, lease=float(self._home.settings.lease_seconds)):
            self._held.pop(lost.ref, None)

    def _is_mine(self, claim: Claim) -> bool:
        return (claim.letter.queue, claim.letter.kind) == (self._queue, mapping.KIND)

    async def rescue(self) -> int:
        """Take back the tasks of this queue whose process died; return how many."""
        expired = await self._home.store.expired(_RESCUED)
        if len(expired) == _RESCUED and not any(map(self._is_mine, expired)):  # workers of other queues died
            expired = await self._home.store.expired(_LOOKED_AT)
        mine = [claim for claim in expired if self._is_mine(claim)]
        for claim in mine:
            await self._give_back([claim], Lost(Why.WORKER_DIED.naming(str(claim.letter.worker))))
        return len(mine)


async def _cancel(running: set[asyncio.Task[None]]) -> None:
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
