"""
Run sync handlers in threads.

Owns a pool of daemon threads. A thread cannot be stopped from outside: when an item is out of time, the engine
settles it, abandons its thread and starts another. It counts abandoned threads; beyond a bound it takes no more
items, and the process has to be recycled. Knows no store and no decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from redrive.core.decide import Interrupted
from redrive.core.why import Why
from redrive.engine.attempt import attempt_now, timed_out
from redrive.engine.clock import SystemClock
from redrive.engine.runners.contract import STOPPED
from redrive.engine.runners.runs import OpenRuns, Run

if TYPE_CHECKING:
    from collections.abc import Collection

    from redrive.core.decide import Outcome
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import OnOutcome

T = TypeVar("T")

_EXHAUSTED = Interrupted(Why.TOO_MANY_THREADS, wait=1.0)


class _ThreadRun(Run, eq=False):
    context: contextvars.Context = msgspec.field(default_factory=contextvars.copy_context)
    began: float | None = None  # set by the thread that takes it


class ThreadEngine(Generic[T]):
    """Runs items in up to *size* threads, and leaves up to *max_abandoned* more hanging."""

    vacant = False

    def __init__(self, size: int, *, max_abandoned: int = 8, clock: Clock | None = None) -> None:
        self._size = size
        self._max_abandoned = max_abandoned
        self._clock = clock or SystemClock()
        self._monotonic = self._clock.monotonic
        self._open: OpenRuns[_ThreadRun] = OpenRuns()
        self._waiting: SimpleQueue[_ThreadRun | None] = SimpleQueue()
        self._threads: set[threading.Thread] = set()
        # The thread and the timer of a run race to take it out of here; the winner decides how it ended.
        self._running: dict[_ThreadRun, threading.Thread] = {}
        self._abandoned: set[threading.Thread] = set()
        self._left: dict[threading.Thread, str] = {}  # interrupted: which handler each of them runs
        self._finished: deque[tuple[_ThreadRun, Outcome]] = deque()
        self._woken = False
        self._closed = False

    @property
    def exhausted(self) -> bool:
        """Whether the maximum of threads hang; a thread that returns after all ends this."""
        return len(self._abandoned) >= self._max_abandoned

    def start(self, handler: Handler[T], item: T, ticket: object, done: OnOutcome) -> None:
        """Run *item* in the next free thread; see `Engine.start`."""
        if self._closed or self.exhausted:
            done(ticket, STOPPED if self._closed else _EXHAUSTED)
            return
        loop = asyncio.get_running_loop()
        run = _ThreadRun(handler, item, ticket, done)
        self._open.open(run)
        if handler.timeout is not None:
            run.timer = self._clock.timers().call_later(handler.timeout, self._look, run, loop)
        self._waiting.put(run)
        if len(self._threads) < min(self._size, len(self._open)):
            self._hire(loop)

    async def close(self, grace: float) -> None:
        """Wait up to *grace* seconds, then abandon the threads; see `Engine.close`."""
        self._closed = True
        await self._open.drain(grace)
        self.interrupt()

    def interrupt(self) -> None:
        """Settle everything as Interrupted; threads end once their handler returns."""
        self._closed = True
        self._left |= {thread: run.handler.name for run, thread in tuple(self._running.items())}
        self._running.clear()
        for run in self._open:
            self._open.settle(run, STOPPED)
        for _ in self._threads:
            self._waiting.put(None)
        self._threads.clear()

    def recall(self, queues: Collection[str], why: Interrupted) -> None:
        """Do nothing: there is a thread for each item that may run, so none waits for long."""

    @property
    def leftovers(self) -> list[str]:
        """See `Engine.leftovers`."""
        return sorted(name for thread, name in self._left.items() if thread.is_alive())

    # ------------------------------------------------------------------ on the event loop

    def _hire(self, loop: asyncio.AbstractEventLoop) -> None:
        thread = threading.Thread(target=self._work, args=(loop,), name="redrive-handler", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _look(self, run: _ThreadRun, loop: asyncio.AbstractEventLoop) -> None:
        """End a run that is out of time; its clock runs from when a thread took it."""
        limit = run.handler.timeout or 0.0
        left = limit if run.began is None else run.began + limit - self._monotonic()
        if left > 0:
            run.timer = self._clock.timers().call_later(left, self._look, run, loop)
        elif (thread := self._running.get(run)) is not None and self._abandon(run, thread):
            self._hire(loop)
            self._open.settle(run, timed_out(run.handler))

    def _abandon(self, run: _ThreadRun, thread: threading.Thread) -> bool:
        """Abandon *thread*; return False if its run has ended after all and reports its outcome."""
        self._abandoned.add(thread)  # before it can return, which takes it out again
        if self._running.pop(run, None) is None:
            self._abandoned.discard(thread)
            return False
        self._threads.discard(thread)
        return True

    def _collect(self) -> None:
        self._woken = False  # before reading: a later outcome wakes the loop again
        while self._finished:
            self._open.settle(*self._finished.popleft())

    # ------------------------------------------------------------------ in the threads

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        me = threading.current_thread()
        while (run := self._waiting.get()) is not None:
            if run not in self._open:  # interrupted while it waited
                continue
            self._running[run] = me
            run.began = self._monotonic()
            outcome = run.context.run(attempt_now, run.handler, run.item)
            if self._running.pop(run, None) is None:  # its timer settled the run, and replaced this thread
                break
            self._report(run, outcome, loop)
        self._abandoned.discard(me)

    def _report(self, run: _ThreadRun, outcome: Outcome, loop: asyncio.AbstractEventLoop) -> None:
        """Hand the outcome to the event loop; one wake-up serves all outcomes that wait."""
        self._finished.append((run, outcome))
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: no outcome is needed any more
                loop.call_soon_threadsafe(self._collect)
