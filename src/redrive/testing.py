"""
For users' tests: an application on a clock that only the test moves.

Owns the fake clock and the driving of a worker by hand, so that no test sleeps, waits for a
retry, or leaves a file behind. Everything else is the real thing: the same engine, the same
decisions, and a store that passes the suite of every other store. Knows no test framework.

    async def test_an_order_is_shipped_once_the_warehouse_is_back():
        async with drive(app) as test:
            await app.enqueue("order.created", {"order": 17})
            await test.run_until_idle()  # retries too: the clock jumps to each of them
            assert not await test.letters("status:failed")
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from redrive.core.query import parse
from redrive.stores.clock import ManualClock
from redrive.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractContextManager

    from redrive.core.facts import Fact
    from redrive.core.letter import Letter
    from redrive.engine.clock import Clock
    from redrive.signals.hub import Hub
    from redrive.stores.contract import Backlog, Store
    from redrive.wiring import Parts

__all__ = ["Drive", "FakeClock", "drive"]

_PATIENCE = 10.0  # real seconds that a handler may take before a test is told that it hangs
_MOST_ROUNDS = 10_000
_STEP = 1.0  # seconds to let pass when letters are due but held back: by a breaker, a rate, another's lease


class FakeClock(ManualClock):
    """
    Time that passes when told to, and loaded dice.

    Serves the engine and a store alike. `draws` are the numbers that jitter will draw, first
    to last; once they are used up, every draw is 0.5.
    """

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[float] = []

    def monotonic(self) -> float:
        """Return the seconds that have been let pass, plus a constant."""
        return self.lease_ms() / 1_000

    def draw(self) -> float:
        """Return the next of `draws`, or 0.5."""
        return self.draws.pop(0) if self.draws else 0.5

    async def sleep(self, seconds: float) -> None:
        """Let *seconds* pass at once."""
        self.advance(seconds)
        await asyncio.sleep(0)  # others get their turn, as with a real sleep

    def block(self, seconds: float) -> None:
        """Let *seconds* pass at once."""
        self.advance(seconds)


class App(Protocol):
    """What `drive` needs of an application; `redrive.Redrive` is one."""

    hub: Hub

    def using(self, store: Store, clock: Clock) -> AbstractContextManager[None]:
        """Keep letters in *store* and go by *clock* meanwhile."""

    def parts(self) -> Parts:
        """Put a worker together without running it."""

    async def open(self) -> None:
        """Open the store and declare the queues."""


@asynccontextmanager
async def drive(app: App, *, clock: FakeClock | None = None, store: Store | None = None) -> AsyncIterator[Drive]:
    """
    Swap an empty memory store on a fake clock into *app*, and hand out what runs its letters.

    *store*, if given, is used instead; it should be on the same *clock*. Afterwards the
    application has its own store and clock again. Do not call `app.run` inside.
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
    A worker that moves only when told to. Made by `drive`.

    `clock` is its time, `store` keeps the letters, `facts` is everything announced so far.
    """

    def __init__(self, parts: Parts, store: Store, clock: FakeClock, facts: list[Fact]) -> None:
        self.worker, self.processor, self.lines = parts
        self.store, self.clock, self.facts = store, clock, facts

    async def run_until_idle(self, *, rounds: int = _MOST_ROUNDS, patience: float = _PATIENCE) -> None:
        """
        Run all letters to their end; the clock jumps from one due time to the next.

        Ends when nothing is left to do: every letter is delivered or failed, waits for one that
        failed, or stands in a paused queue. Raise AssertionError after so many *rounds*, or when
        a handler takes more than *patience* real seconds.
        """
        for _ in range(rounds):
            await self.tick(rounds=rounds, patience=patience)
            left = await self.store.backlog(self.lines.every_want())
            if not left.runnable and not left.in_flight:
                return
            self.clock.advance(left.next_due or _STEP)
        raise AssertionError(f"not idle after {rounds} rounds: {await self._left(left)}")

    async def tick(self, *, rounds: int = _MOST_ROUNDS, patience: float = _PATIENCE) -> None:
        """Run what is due now, and what becomes due through it, to its end; the clock stands still."""
        await self.worker.attend()
        for _ in range(rounds):
            self.processor.wake.clear()
            rest = await self.processor.tick()
            if rest and self.processor.idle:
                return
            if rest and self.lines.running:
                await self._handlers(patience)
        raise AssertionError(f"there was always more to do, {rounds} rounds long; does a handler enqueue its own kind?")

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
        try:
            async with asyncio.timeout(patience):
                await self.processor.wake.wait()
        except TimeoutError:
            kinds = sorted({claim.letter.kind for claim in self.processor.held.values()})
            raise AssertionError(f"handlers of {', '.join(kinds)} still run after {patience:g} real seconds") from None

    async def _left(self, backlog: Backlog) -> str:
        waiting = await self.letters("status:pending")
        kinds = ", ".join(sorted({letter.kind for letter in waiting})) or "none"
        return f"{len(waiting)} letters are pending (kinds: {kinds}), {backlog.in_flight} in flight"
