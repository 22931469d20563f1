"""
Run sync handlers in threads.

Owns a pool of daemon threads. A thread cannot be stopped from outside: when an item is out of time, the engine
settles it, abandons its thread and starts another. It counts abandoned threads; beyond a bound it takes no more
items, and the process has to be recycled.

Several items of a quick handler may be started together: one thread runs them one after the other. Those that have
not begun can be given back; if the thread is abandoned, another thread takes them. Knows no store and no decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import defaultdict, deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from redrive.core.decide import Interrupted
from redrive.core.why import Why
from redrive.engine.attempt import attempt_now, timed_out
from redrive.engine.clock import SystemClock
from redrive.engine.runners.contract import STOPPED
from redrive.engine.runners.pace import Pace
from redrive.engine.runners.runs import OpenRuns, Run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from redrive.core.decide import Outcome
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import OnOutcome

T = TypeVar("T")

_TOGETHER = 16  # items of a quick handler that may be started together
_QUICK = 0.0005  # seconds that the runs of a quick handler take at most: several times as long as a hand-over
_EXHAUSTED = Interrupted(Why.TOO_MANY_THREADS, wait=1.0)


class _ThreadRun(Run, eq=False):
    context: contextvars.Context = msgspec.field(default_factory=contextvars.copy_context)
    began: float | None = None  # set by the thread that takes it
    behind: bool = False  # started together with another item that runs first
    batch: tuple[_ThreadRun, ...] = ()  # those that were started together
    started: float = 0.0


class ThreadEngine(Generic[T]):
    """Runs items in up to *size* threads, and leaves up to *max_abandoned* more hanging."""

    vacant = False

    def __init__(self, size: int, *, max_abandoned: int = 8, clock: Clock | None = None) -> None:
        self._size = size
        self._max_abandoned = max_abandoned
        self._clock = clock or SystemClock()
        self._monotonic = self._clock.monotonic
        self._open: OpenRuns[_ThreadRun] = OpenRuns()
        self._waiting: SimpleQueue[Sequence[_ThreadRun] | None] = SimpleQueue()
        # A thread, and the loop that gives a run back, race to take it out of here; only the winner may go on with it.
        self._unbegun: dict[_ThreadRun, None] = {}
        self._paces: defaultdict[Handler[Any], Pace] = defaultdict(lambda: Pace(_QUICK))
        self._threads: set[threading.Thread] = set()
        # The thread and the timer of a run race to take it out of here; the winner decides how it ended.
        self._running: dict[_ThreadRun, threading.Thread] = {}
        self._abandoned: set[threading.Thread] = set()
        self._left: dict[threading.Thread, str] = {}  # interrupted: which handler each of them runs
        self._finished: deque[tuple[_ThreadRun, Outcome, float]] = deque()  # with the seconds that it ran
        self._woken = False
        self._closed = False

    @property
    def exhausted(self) -> bool:
        """Whether the maximum of threads hang; a thread that returns after all ends this."""
        return len(self._abandoned) >= self._max_abandoned

    def start(self, handler: Handler[T], item: T, ticket: object, done: OnOutcome) -> None:
        """Run *item* in the next free thread; see `Engine.start`."""
        self.start_many(handler, ((item, ticket),), done)

    def share(self, handler: Handler[T]) -> int:
        """See `HandsOver.share`."""
        return _TOGETHER if self._paces[handler].is_quick else 1

    def start_many(self, handler: Handler[T], items: Sequence[tuple[T, object]], done: OnOutcome) -> None:
        """Run *items* in the next free thread; see `HandsOver.start_many`."""
        if self._closed or self.exhausted:
            for _, ticket in items:
                done(ticket, STOPPED if self._closed else _EXHAUSTED)
            return
        loop = asyncio.get_running_loop()
        runs = tuple(_ThreadRun(handler, item, ticket, done) for item, ticket in items)
        for run in runs:
            self._open.open(run)
            if handler.timeout is not None:
                run.timer = self._clock.timers().call_later(handler.timeout, self._look, run, loop)
        self._put(runs)
        if len(self._threads) < min(self._size, len(self._open)):
            self._hire(loop)

    def _put(self, runs: tuple[_ThreadRun, ...]) -> None:
        """Let the next free thread take *runs*."""
        now = self._monotonic()
        for number, run in enumerate(runs):
            run.behind, run.started, run.batch = number > 0, now, runs
            self._unbegun[run] = None
        self._waiting.put(runs)

    async def close(self, grace: float) -> None:
        """Wait up to *grace* seconds, then abandon the threads; see `Engine.close`."""
        self._closed = True
        self._give_back((run for run in tuple(self._unbegun) if run.behind), STOPPED)
        await self._open.drain(grace)
        self.interrupt()

    def interrupt(self) -> None:
        """Settle everything as Interrupted; threads end once their handler returns."""
        self._closed = True
        self._left |= {thread: run.handler.name for run, thread in tuple(self._running.items())}
        self._running.clear()
        self._unbegun.clear()
        for run in self._open:
            self._open.settle(run, STOPPED)
        for _ in self._threads:
            self._waiting.put(None)
        self._threads.clear()

    def recall(self, queues: Collection[str], why: Interrupted) -> None:
        """Give back what no thread has begun; see `Engine.recall`."""
        self._give_back((run for run in tuple(self._unbegun) if run.item.queue in queues), why)

    def recall_late(self, before: float, why: Interrupted) -> None:
        """See `HandsOver.recall_late`."""
        self._give_back((run for run in tuple(self._unbegun) if run.behind and run.started < before), why)

    @property
    def holds(self) -> bool:
        """See `HandsOver.holds`."""
        return any(run.behind for run in tuple(self._unbegun))

    def _give_back(self, runs: Iterable[_ThreadRun], why: Interrupted) -> None:
        for run in runs:
            if self._unbegun.pop(run, run) is None:  # no thread has taken it
                self._open.settle(run, why)

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
            if rest := tuple(each for each in run.batch if self._unbegun.pop(each, each) is None):
                self._put(rest)
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
            run, outcome, seconds = self._finished.popleft()
            self._paces[run.handler].note(seconds)
            self._open.settle(run, outcome)

    # ------------------------------------------------------------------ in the threads

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        me = threading.current_thread()
        while (runs := self._waiting.get()) is not None:
            if not all(self._run(run, me, loop) for run in runs):
                break  # a timer settled a run, and replaced this thread
        self._abandoned.discard(me)

    def _run(self, run: _ThreadRun, me: threading.Thread, loop: asyncio.AbstractEventLoop) -> bool:
        """Run an item that has not begun; return False if this thread was abandoned meanwhile."""
        if self._unbegun.pop(run, run) is not None:  # given back while it waited
            return True
        self._running[run] = me
        run.began = self._monotonic()
        outcome = run.context.run(attempt_now, run.handler, run.item)
        seconds = self._monotonic() - run.began
        if self._running.pop(run, None) is None:
            return False
        self._report(run, outcome, seconds, loop)
        return True

    def _report(self, run: _ThreadRun, outcome: Outcome, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        """Hand the outcome to the event loop; one wake-up serves all outcomes that wait."""
        self._finished.append((run, outcome, seconds))
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: no outcome is needed any more
                loop.call_soon_threadsafe(self._collect)
