"""
Retries in cycles.

Owns when retries run: in cycles, each of which runs the tasks that were due when it began, in parallel with a bound.
Also owns the rescue of what dead processes held, and how the processor stops: what runs is stopped and given back.
Knows no delay (`core.policy`), no rule (`core.decide`), and not how a claim is kept (`holding`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from typing import TYPE_CHECKING

from redrive.core.decide import Counted, Failed, Interrupted, Lost, decide, held_back, is_retry
from redrive.core.priority_shares import SHARES
from redrive.core.why import Why, why_of
from redrive.engine.stranded import fail_stranded
from redrive.engine.unknown_backoffs import UnknownBackoffs
from redrive.errors import StoreError
from redrive.signals.log import write
from redrive.sources.workflow import mapping
from redrive.sources.workflow.policies import MOST_RETRIES
from redrive.sources.workflow.retrying.breakers import Breakers, held_by
from redrive.sources.workflow.retrying.holding import PATIENCE, Holding, unbroken
from redrive.sources.workflow.retrying.running import attempt
from redrive.sources.workflow.retrying.settled import SettledRetry, unrun
from redrive.sources.workflow.telling import amounts_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from typing import Any

    from redrive.core.breaker import BreakerRules
    from redrive.core.decide import Outcome
    from redrive.core.letter import Failure, Letter
    from redrive.core.moves import Move
    from redrive.core.policy import RetryPolicy as Policy
    from redrive.sources.workflow.port import Home
    from redrive.sources.workflow.retrying.running import Callback, Judge
    from redrive.stores.contract import Claim

_SHUTDOWN = Interrupted(Why.SHUTDOWN)
_NEXT_CYCLE = 0.001  # seconds: an immediate retry is due after the cycle in which it failed began
_NOT_YET = 1.0  # seconds, at most, until a task of the next cycle may be claimed again: others are to be claimed first
_RESCUED = 200  # lost tasks that one sweep takes back
_LOOKED_AT = 20_000  # lost letters of all queues among which it looks for them


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
        settled: Callable[[SettledRetry], None],
    ) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.interval = 60.0  # seconds
        self.callback: Callback | None = None
        self._home, self._queue, self._judge, self._settled = home, queue, judge, settled
        self._breakers = Breakers(breakers)
        self._unknown = UnknownBackoffs(home.backoffs, self.name, home.hub)
        self._concurrency = concurrency
        self._held = Holding(home, queue, self.name)
        self._one_at_a_time = asyncio.Lock()  # cycles: the loop's own, and those that a caller runs
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
        await self._held.extend(lambda: True)
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
        """Renew the leases of what runs in the block: a task or a cycle run by hand."""
        beats = asyncio.create_task(self._every(self._beat_time, self._beat), name="redrive workflow heartbeat")
        try:
            yield
        finally:
            await _cancel({beats})
            with contextlib.suppress(StoreError):
                await self._sign_off()

    async def _sign_off(self) -> None:
        """Leave once nothing is held: what a worker that left holds is taken from it at once."""
        if self._held:
            await self._beat()
        elif not self._loops:
            await self._held.leave()

    def _cycle_time(self) -> float:
        return self.interval

    def _beat_time(self) -> float:
        return min(self._held.lease / 3, float(self._home.settings.sweep_seconds))

    async def _every(self, span: Callable[[], float], step: Callable[[], Coroutine[None, None, Any]]) -> None:
        clock = self._home.clock
        while True:
            began = clock.monotonic()
            try:
                await step()
            except StoreError as error:
                self._store_is_away(error)
            except Exception as error:  # noqa: BLE001 - a fault of ours must not end the retries
                write("error", "redrive.workflow.fault", {"queue": self._queue, "error_type": type(error).__name__})
            await clock.sleep(max(0.0, span() - (clock.monotonic() - began)))

    def _store_is_away(self, error: StoreError) -> None:
        write("warning", "redrive.workflow.store_away", {"queue": self._queue, "why": str(error)})

    # ------------------------------------------------------------------ one cycle

    async def cycle(self) -> int:
        """Run every task that was due when the cycle began; return how many ran."""
        async with self._one_at_a_time:
            try:
                await unbroken(self._fail_stranded())
                await self._breakers.look(self._home.store)
                suspects: list[str] = []
                return await self._run_together(suspects) + await self._run_alone(suspects)
            finally:
                await self._let_go(self._held.of_cycles())  # none, unless it was stopped

    async def _run_together(self, suspects: list[str]) -> int:
        """Run what is due in parallel; *suspects* gets the tasks that are to run alone, which are given back."""
        ran = start_us = later = 0
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                wanted = self._concurrency - len(running)
                claims = await self._held.claim(wanted)
                start_us = start_us or (claims[0].letter.updated_us if claims else 0)
                ready = await self._sorted_out(claims, start_us, suspects)
                running |= {asyncio.create_task(self._run(claim)) for claim in ready}
                ran += len(ready)
                later = later + len(claims) if all(_is_later(claim, start_us) for claim in claims) else 0
                if len(claims) < wanted or later >= len(SHARES):
                    await _ended(running, "ALL_COMPLETED")
                    return ran
                if len(running) == self._concurrency:
                    running = await _ended(running, "FIRST_COMPLETED")
        except StoreError:  # what runs may end: its outcome is kept until the store is back
            await _ended(running, "ALL_COMPLETED")
            raise
        finally:
            await _cancel(running)

    async def _sorted_out(self, claims: list[Claim], start_us: int, suspects: list[str]) -> list[Claim]:
        """Return the tasks that begin now; give back those of a later cycle, and those that are to run alone."""
        later = [claim for claim in claims if _is_later(claim, start_us)]
        alone = [claim for claim in claims if claim.losses and claim not in later]
        suspects += [claim.letter.id for claim in alone]
        await self._give_back(later, Interrupted(Why.GIVEN_BACK, wait=min(_NOT_YET, self.interval)))
        await self._give_back(alone, Interrupted(Why.WAITS_TO_RUN_ALONE, wait=self._held.lease))
        return [claim for claim in claims if claim not in later and claim not in alone]

    async def _run_alone(self, suspects: list[str]) -> int:
        """Run tasks whose last process died, one after the other: the next death then convicts only one of them."""
        ran = 0
        for letter_id in suspects:
            letter = await self._home.store.get(letter_id)
            if letter is None or why_of(letter.why) is not Why.WAITS_TO_RUN_ALONE:
                continue  # another process ran it: it waits for its next retry
            claim = await self._held.take(letter_id)
            if claim is not None:
                await self._run(claim)
                ran += 1
        return ran

    async def _fail_stranded(self) -> None:
        """Let go, or fail, tasks that wait for dead ones and said so."""
        store, told = self._home.store, {"worker": self.name, "lease": self._held.lease, "queue": self._queue}

        async def settle(claim: Claim, move: Move) -> bool:
            return await store.settle_counted(claim, move, self._queue, amounts_of(unrun(claim, move)))

        for claim, move in await fail_stranded(store, self._home.hub, settle=settle, **told):  # type: ignore[arg-type]
            self._settled(unrun(claim, move))

    # ------------------------------------------------------------------ one task

    async def _run(self, claim: Claim) -> None:
        """Run one task, unless its breaker holds it; if it is cancelled, the cycle gives it back."""
        try:
            hold = self._unknown.hold(claim.letter) or await self._held_by_breaker(claim.letter)
            if hold is not None:
                await self._give_back([claim], hold)
            else:
                await self._attempted(claim, self.callback)
        except StoreError as error:
            self._store_is_away(error)

    async def _held_by_breaker(self, letter: Letter) -> Interrupted | None:
        breaker = mapping.terms_of(letter).breaker
        wait = await self._breakers.hold(self._home.store, breaker)
        return None if wait is None else Interrupted(held_by(breaker), wait=wait)

    async def run_by_hand(self, letter_id: str, callback: Callback | None, *, stays: str | None) -> SettledRetry | None:
        """
        Run one pending task now, due or not; None if it is not pending or waits for others.

        *stays* is the policy's text of a task that was dead: if it fails, it is dead again, as it was.
        """
        async with self.kept_alive():
            taken: list[Claim] = []
            try:
                await self._held.take_by_hand(letter_id, taken)
                if not taken:
                    return None
                return await self._attempted(taken[0], callback or self.callback, stays, by_hand=True)
            finally:
                await self._let_go(self._held.still(taken))  # none, unless it was cancelled

    async def _attempted(
        self, claim: Claim, callback: Callback | None, stays: str | None = None, *, by_hand: bool = False
    ) -> SettledRetry:
        """Run the callback on a claimed task and settle what came of it."""
        assert callback is not None  # noqa: S101 - the queue asks for it first
        outcome, result = await self._attempt(callback, claim.letter)
        move, was_dead = self._decide(claim, outcome, stays), stays is not None
        done = SettledRetry(claim, move, outcome, result, by_hand=by_hand, was_dead=was_dead)
        return await unbroken(self._concluded(done))

    async def _attempt(self, callback: Callback, letter: Letter) -> tuple[Outcome, Any]:
        tracing = self._home.tracing
        if tracing is None:
            return await attempt(callback, letter, self._judge)
        with tracing.running(letter) as ended:
            outcome, result = await attempt(callback, letter, self._judge)
            ended(outcome)
        return outcome, result

    def _decide(self, claim: Claim, outcome: Outcome, stays: str | None = None) -> Move:
        letter, bound = claim.letter, self._home.backoffs.bound

        def choose(failure: Failure) -> Policy:
            return bound(mapping.policy_after(letter, failure) if stays is None else mapping.policy_of(stays))

        if isinstance(outcome, Failed):
            counters = claim if stays is None else Counted(MOST_RETRIES + 1)
            move = decide(counters, outcome, choose, self._home.clock.draw(), age=claim.age)
            return held_back(move, _NEXT_CYCLE) if is_retry(move) else move
        kept = bound(mapping.policy_of(letter.applied_policy or letter.policy))
        return decide(claim, outcome, kept, self._home.clock.draw())

    async def _concluded(self, done: SettledRetry) -> SettledRetry:
        if not await self._held.settle_counted(done.claim, done.move, amounts_of(done)):
            return done._replace(accepted=False)
        self._settled(done)
        await self._breakers.learn(self._home.store, mapping.terms_of(done.claim.letter).breaker, done.outcome)
        return done

    async def _give_back(self, claims: list[Claim], why: Interrupted) -> None:
        if claims:
            await unbroken(self._held.settle([(claim, self._decide(claim, why)) for claim in claims]))

    async def _let_go(self, claims: list[Claim]) -> None:
        """Give back what was stopped; if the store takes nothing, other processes take it when the leases end."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._give_back(claims, _SHUTDOWN)

    # ------------------------------------------------------------------ heartbeat and rescue

    async def _attend(self) -> None:
        await self._beat()
        await self.rescue()

    async def _beat(self) -> None:
        await self._held.extend(lambda: bool(self._loops))

    def _is_mine(self, claim: Claim) -> bool:
        return (claim.letter.queue, claim.letter.kind) == (self._queue, mapping.KIND)

    async def rescue(self) -> int:
        """Take back the tasks of this queue whose process died; return how many."""
        expired = await self._home.store.expired(_RESCUED)
        if len(expired) == _RESCUED and not any(map(self._is_mine, expired)):  # workers of other queues died
            expired = await self._home.store.expired(_LOOKED_AT)
        mine = [claim for claim in expired if self._is_mine(claim)]
        for claim in mine:
            await unbroken(self._rescue(claim))
        return len(mine)

    async def _rescue(self, claim: Claim) -> None:
        move = self._decide(claim, Lost(Why.WORKER_DIED.naming(str(claim.letter.worker))))
        if move.failure is None:
            await self._held.settle([(claim, move)])
            return
        done = unrun(claim, move)  # its process died once too often
        if await self._held.settle_counted(claim, move, amounts_of(done)):
            self._settled(done)


def _is_later(claim: Claim, start_us: int) -> bool:
    """Whether a task became due after the cycle began; then no task of its priority that was due before is left."""
    return claim.letter.due_us > start_us


async def _ended(running: set[asyncio.Task[None]], when: str) -> set[asyncio.Task[None]]:
    """Wait for one or all of these; return those that go on."""
    if not running:
        return running
    done, going = await asyncio.wait(running, return_when=when)
    for task in done:
        task.result()
    return going


async def _cancel(running: set[asyncio.Task[None]]) -> None:
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
