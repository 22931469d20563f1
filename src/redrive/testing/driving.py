"""
A worker that the test drives by hand.

Owns when it runs a round, and how the fake clock jumps: to the next due time, or to a time limit where all handlers
hang. Everything that runs is the real worker. Knows no test framework.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from redrive.core.query import parse
from redrive.stores.memory import MemoryStore
from redrive.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from contextlib import AbstractContextManager

    from redrive.core.facts import Fact
    from redrive.core.letter import Draft, Letter
    from redrive.engine.clock import Clock
    from redrive.signals.hub import Hub
    from redrive.stores.contract import Backlog, Receipt, Store
    from redrive.wiring import WorkerParts

_PATIENCE = 10.0  # real seconds that a handler may take before the test fails
_MOST_ROUNDS = 10_000
_STALL = 1.0  # real seconds after which a handler with a time limit counts as hanging
_GLANCE = 0.02  # real seconds between two checks of handlers that still run
_ITERATIONS = 1_000  # of the event loop, in which other tasks may still do something
_STEP = 1.0  # seconds to advance when letters are due but held back: by a breaker, a rate, another worker's lease


class DrivenApp(Protocol):
    """What `drive` needs of an application; `redrive.Redrive` is one."""

    hub: Hub

    def using(self, store: Store, clock: Clock) -> AbstractContextManager[None]:
        """Use *store* and *clock* inside the block."""

    def parts(self) -> WorkerParts:
        """Build a worker without running it."""

    async def open(self) -> None:
        """Open the store and declare the queues."""

    async def enqueue(self, kind: str, payload: Any, **options: Any) -> Receipt:
        """Keep a letter."""

    async def enqueue_many(self, drafts: Iterable[Draft]) -> list[Receipt]:
        """Keep letters."""


@asynccontextmanager
async def drive(app: DrivenApp, *, clock: FakeClock | None = None, store: Store | None = None) -> AsyncIterator[Drive]:
    """
    Give *app* an empty memory store on a fake clock, and yield a `Drive` that runs its letters.

    *store*, if given, is used instead; it should use the same *clock*. After the block the application has its own
    store and clock again. Do not call `app.run` inside.
    """
    clock = clock or FakeClock()
    store = store or MemoryStore(clock)
    facts: list[Fact] = []
    with app.using(store, clock):
        app.hub.listen(facts.append)
        try:
            await app.open()
            test = Drive(app.parts(), store, clock, facts)
            try:
                yield test
            finally:
                await test.close()
        finally:
            app.hub.unlisten(facts.append)
            await store.close()


class Drive:
    """
    A worker that runs only when the test says so. Made by `drive`.

    `clock` is its time, `store` keeps the letters, `facts` is everything announced so far.
    """

    def __init__(self, parts: WorkerParts, store: Store, clock: FakeClock, facts: list[Fact]) -> None:
        self.worker, self.processor, self.capacity = parts
        self.store, self.clock, self.facts = store, clock, facts
        self._resting = _resting()

    async def run_until_idle(self, *, rounds: int = _MOST_ROUNDS, patience: float = _PATIENCE) -> None:
        """
        Run all letters to their end; the clock jumps from one due time to the next.

        Ends when nothing is left to do: every letter is delivered or failed, waits for a failed one, or is in a
        paused queue. Raise AssertionError after *rounds* rounds, or when a handler takes more than *patience* real
        seconds.
        """
        for _ in range(rounds):
            await self.tick(rounds=rounds, patience=patience)
            left = await self.store.backlog(self.capacity.every_want())
            if not left.runnable and not left.in_flight:
                return
            self.clock.advance(left.next_due or _STEP)
        raise AssertionError(f"not idle after {rounds} rounds: {await self._left(left)}")

    async def tick(self, *, rounds: int = _MOST_ROUNDS, patience: float = _PATIENCE) -> None:
        """
        Run what is due now, and what becomes due by that, to its end; the clock does not move.

        Only if all handlers hang does it jump, to the first of their time limits.
        """
        await self.worker.attend()
        for _ in range(rounds):
            self.processor.wake.clear()
            rest = await self.processor.tick()
            if rest and self.processor.idle:
                return
            if rest and self.capacity.running:
                await self._handlers(patience)
        raise AssertionError(f"there was more to do after {rounds} rounds; does a handler enqueue its own kind?")

    async def letters(self, query: str = "") -> list[Letter]:
        """Return every letter that matches, newest first."""
        page = await self.store.find(parse(query))
        found = page.letters
        while page.cursor is not None:
            page = await self.store.find(parse(query), cursor=page.cursor)
            found += page.letters
        return found

    async def letter(self, letter_id: str) -> Letter:
        """Return one letter; raise AssertionError if it is not kept."""
        found = await self.store.get(letter_id)
        if found is None:
            raise AssertionError(f"no letter has the id {letter_id!r}")
        return found

    async def close(self) -> None:
        """Stop what still runs and give its attempts back."""
        self.worker.stop()
        self.worker.stop()
        await self.worker.finish()

    async def _handlers(self, patience: float) -> None:
        """Wait for a handler to end; if all of them hang, advance to the first time limit."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not await self._ended():
            waited, limit = loop.time() - began, self.clock.next_alarm
            if limit is not None and (waited >= _STALL or self._nothing_happens_within(limit)):
                await self._let_pass(limit)
                began = loop.time()
            elif waited >= patience:
                kinds = sorted({claim.letter.kind for claim in self.processor.held.values()})
                raise AssertionError(f"handlers of {', '.join(kinds)} still run after {patience:g} real seconds")
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.processor.wake.wait(), min(_GLANCE, patience))

    async def _ended(self) -> bool:
        """Let other tasks run as long as they can; return whether a handler has ended."""
        loop = asyncio.get_running_loop()
        for _ in range(_ITERATIONS):
            await asyncio.sleep(0)
            if self.processor.wake.is_set() or not getattr(loop, "_ready", None):
                break
        return self.processor.wake.is_set()

    def _nothing_happens_within(self, limit: float) -> bool:
        """
        Whether it is certain that no running handler ends within *limit* seconds.

        It is, if the event loop waits for no file, no socket and no earlier timer, and every other thread is where it
        was when the test began. It is not, if the loop is not asyncio's own and cannot be inspected.
        """
        loop: Any = asyncio.get_running_loop()
        try:
            timers = [handle.when() for handle in loop._scheduled if not handle.cancelled()]  # noqa: SLF001
            idle = not loop._ready and len(loop._selector.get_map()) == 1  # noqa: SLF001 - one: the loop's own waker
        except (AttributeError, TypeError):
            return False
        still = _resting().items() <= self._resting.items()
        return idle and still and loop.time() + limit < min(timers, default=float("inf"))

    async def _let_pass(self, seconds: float) -> None:
        """Let *seconds* pass in steps, with a heartbeat at each: a worker whose handlers hang is not dead."""
        step = self.worker.lease / 3
        while seconds > step:
            self.clock.advance(step)
            await self.worker.attend()
            seconds -= step
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    async def _left(self, backlog: Backlog) -> str:
        waiting = await self.letters("status:pending")
        kinds = ", ".join(sorted({letter.kind for letter in waiting})) or "none"
        count = "1 letter is" if len(waiting) == 1 else f"{len(waiting)} letters are"
        return f"{count} pending (kinds: {kinds}), {backlog.in_flight} in flight"


def _resting() -> dict[int, tuple[int, int]]:
    """Return where each other thread is now: a thread that is there again later does no work for the test."""
    me = threading.get_ident()
    frames = sys._current_frames()  # noqa: SLF001 - documented, for such purposes
    return {thread: (id(frame), frame.f_lasti) for thread, frame in frames.items() if thread != me}
