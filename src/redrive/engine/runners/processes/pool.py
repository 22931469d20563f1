"""
Run handlers in child processes.

Owns a pool of children and which letter runs in which. A child runs one letter at a time, so that its death is the
outcome of exactly that letter. The pool spawns children when letters wait, or earlier if asked. A letter whose child
dies is Lost. A letter that is out of time has failed, and the pool kills its child. Siblings notice neither.

Letters of a quick handler may be started together: the pool sends them to one child in one step, and takes in their
outcomes in one step. When all children are busy with short letters, the pool may also send each of them the next in
line ahead. A letter that was sent and has not begun can be recalled and its time does not count; if the child ends
before the letter begins, the letter is first in line again. Knows no store and no decision.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict, deque
from typing import TYPE_CHECKING

from redrive.core.decide import SUCCEEDED, Failed, Interrupted, Lost
from redrive.engine.attempt import failure_of, timed_out
from redrive.engine.clock import SystemClock
from redrive.engine.runners.contract import STOPPED
from redrive.engine.runners.pace import Pace
from redrive.engine.runners.processes.child import Child, ChildRun
from redrive.engine.runners.processes.lifeline import Lifeline
from redrive.engine.runners.processes.limits import ChildLimits
from redrive.engine.runners.processes.recipes import written_for
from redrive.engine.runners.processes.starts import Starts
from redrive.engine.runners.runs import OpenRuns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from redrive.core.decide import Outcome
    from redrive.core.letter import Letter
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import OnOutcome
    from redrive.engine.runners.processes.frames import Report

_START_LIMIT = 60.0  # seconds that a child has to start, and to import a handler
_GOODBYE = 2.0  # seconds that an idle child has to end by itself
_TOGETHER = 16  # letters of a quick handler that may be started together
_QUICK = 0.0005  # seconds that the runs of such a handler take at most: several times as long as a hand-over


class ProcessEngine:
    """Runs letters in up to *size* child processes."""

    exhausted = False
    vacant = False
    leftovers: list[str] = []  # noqa: RUF012 - none, ever: children are killed

    def __init__(self, size: int, *, clock: Clock | None = None) -> None:
        self._size = size
        self._clock = clock or SystemClock()
        self._open: OpenRuns[ChildRun] = OpenRuns()
        self._waiting: deque[Sequence[ChildRun]] = deque()  # those that were started together go to one child
        self._recipes: dict[Handler, bytes] = {}
        self._paces: defaultdict[Handler, Pace] = defaultdict(Pace)
        self._quick_paces: defaultdict[Handler, Pace] = defaultdict(lambda: Pace(_QUICK))
        self._limits = ChildLimits(self._clock, self._expire)
        self._children: set[Child] = set()  # alive and well, or starting
        self._idle: list[Child] = []
        self._unprepared: dict[Child, Handler] = {}  # started early; the handler that each imports first
        self._dying: set[Child] = set()
        self._all_buried = asyncio.Event()  # nothing is dying
        self._starts = Starts(self._hand_out)
        self._lifeline = Lifeline()
        self._closed = False

    def start(self, handler: Handler, item: Letter, ticket: object, done: OnOutcome) -> None:
        """Run *item* in the next free child; see `Engine.start`."""
        self.start_many(handler, ((item, ticket),), done)

    def share(self, handler: Handler) -> int:
        """See `HandsOver.share`."""
        return _TOGETHER if self._quick_paces[handler].is_quick else 1

    def start_many(self, handler: Handler, items: Sequence[tuple[Letter, object]], done: OnOutcome) -> None:
        """Run *items* in the next free child; see `HandsOver.start_many`."""
        if self._closed:
            for _, ticket in items:
                done(ticket, STOPPED)
            return
        self._waiting.append([self._opened(handler, item, ticket, done) for item, ticket in items])
        for run in self._waiting[-1][1:]:
            run.behind, run.started = True, self._clock.monotonic()
        self._hand_out()

    def prepare(self, handler: Handler) -> None:
        """Start all children now and let them import *handler*, so that no letter waits for that."""
        while len(self._children) < self._size and self._spawn():
            pass
        self._unprepared = {child: handler for child in self._children if not child.is_ready}

    async def close(self, grace: float) -> None:
        """Wait up to *grace* seconds, then kill what is left; see `Engine.close`."""
        self._closed = True
        self._recall(lambda run: run.behind, STOPPED)
        await self._open.drain(grace)
        self.interrupt()
        await self._bury_all()
        self._lifeline.cut()

    def interrupt(self) -> None:
        """Kill every child that is not idle; idle ones may end by themselves."""
        self._closed = True
        self._look()
        self._waiting.clear()
        self._limits.close()
        idle = tuple(self._idle)
        self._starts.close()
        for child in tuple(self._children):
            self._dismiss(child)
            if child in idle:
                child.retire()
            else:
                child.kill()
        for run in self._open:
            self._open.settle(run, STOPPED)

    def recall(self, queues: Collection[str], why: Interrupted) -> None:
        """Give back what waits for a child, and recall what was sent ahead; see `Engine.recall`."""
        self._recall(lambda run: run.item is not None and run.item.queue in queues, why)

    def recall_late(self, before: float, why: Interrupted) -> None:
        """Take in what has succeeded, and recall what waits behind it; see `HandsOver.recall_late`."""
        self._look()
        self._recall(lambda run: run.behind and run.started < before, why)

    @property
    def holds(self) -> bool:
        """See `HandsOver.holds`."""
        return any(run.behind for batch in (*self._waiting, *(child.sent for child in self._children)) for run in batch)

    def _recall(self, which: Callable[[ChildRun], bool], why: Interrupted) -> None:
        for child in self._children:
            child.recall(which, why)
        recalled = [run for batch in self._waiting for run in batch if which(run)]
        if recalled:
            left = ([run for run in batch if not which(run)] for batch in self._waiting)
            self._waiting = deque(batch for batch in left if batch)
        for run in recalled:
            self._open.settle(run, why)

    def _look(self) -> None:
        """Take in what children have marked: one that runs a long letter has not reported those before it."""
        for child in tuple(self._children):
            if len(child.sent) > 1:
                child.look()

    # ------------------------------------------------------------------ handing out

    def _hand_out(self) -> None:
        while self._waiting and self._idle:
            self._give(self._idle.pop(), self._waiting.popleft())
        if self._waiting and len(self._children) < self._size:
            self._grow()
        while self._waiting and (child := self._busy_child_for(self._waiting[0][0])) is not None:
            self._give(child, self._waiting.popleft())

    def _grow(self) -> None:
        starting = sum(not child.is_ready for child in self._children)
        wanted = min(len(self._waiting), 1 if self._starts.failures else self._size)  # after a failure one at a time
        while starting < wanted and len(self._children) < self._size and not self._starts.is_resting:
            starting += self._spawn()

    def _busy_child_for(self, run: ChildRun) -> Child | None:
        """Return a child that may be sent *run* ahead; none while a child is idle or about to be."""
        found = None
        for child in self._children:
            if child.run is None:
                return None
            if child.batches == 1 and run.recipe in child.recipes and _is_soon_free(child, child.run):
                found = child
        return found

    def _give(self, child: Child, batch: Sequence[ChildRun]) -> None:
        was_idle = child.run is None
        try:
            refused = child.give(batch)
        except ConnectionError:  # it has died a moment ago; these letters have not run
            self._waiting.appendleft(batch)
            self.broken(child)
            return
        if was_idle and child.run is None:
            self._idle.append(child)
        for run, error in refused:
            self._open.settle(run, Failed(failure_of(error, run.handler)))
        if was_idle and (first := child.run) is not None:  # what was sent ahead has not begun: no time counts yet
            self._limits.count(child, first, 0.0 if first.recipe in child.recipes else _START_LIMIT)

    def _expire(self, child: Child) -> None:
        run = child.run
        child.look()
        if run is None or run is not child.run:  # its time starts when the run before it ends
            return
        self._dismiss(child)
        child.retire()  # first: a report that arrives now must not begin the next letter in a child that we kill
        child.kill()
        child.sent.popleft()
        self._take_back(child)
        self._open.settle(run, timed_out(run.handler))
        self._hand_out()

    def _take_back(self, child: Child) -> None:
        """Put what has not begun first in line again; its child is dead, or killed and no longer read."""
        runs = [run for run in child.sent if run in self._open]
        child.sent.clear()
        if waiting := [run for run in runs if run.recalled is None]:
            self._waiting.appendleft(waiting)
        for run in runs:
            if run.recalled is not None:
                self._open.settle(run, run.recalled)

    def _opened(self, handler: Handler, letter: Letter | None, ticket: object, done: OnOutcome) -> ChildRun:
        recipe = self._recipes.get(handler)
        if recipe is None:
            recipe = self._recipes[handler] = written_for(handler)
        run = ChildRun(handler, letter, ticket, done, recipe=recipe, pace=self._paces[handler])
        self._open.open(run)
        return run

    # ------------------------------------------------------------------ what children report

    def ready(self, child: Child) -> None:
        """Take up a child that has started."""
        self._starts.succeeded()
        handler = self._unprepared.pop(child, None)
        if handler is None:
            self._idle.append(child)
        else:  # if that fails, the first letter meets the same error and reports it
            order = self._opened(handler, None, None, _ignored)  # no letter: it only imports the handler
            self._give(child, (order,))
        self._hand_out()

    def begins(self, child: Child) -> None:
        """Count the time limit from here: the child had to import its handler first."""
        if child.run is not None:
            child.recipes.add(child.run.recipe)
            self._limits.count(child, child.run)

    def reported(self, child: Child, ended: Sequence[tuple[ChildRun, Report]], took: float | None) -> None:
        """Settle letters that the child ran, and give it the next."""
        if took is not None:
            run, _ = ended[-1]
            run.pace.note(took)
            self._quick_paces[run.handler].note(took)
        self._limits.count(child, child.run)  # what was sent with them or ahead, if anything, begins
        if child.run is None and child in self._children:
            self._idle.append(child)
        for run, report in ended:
            self._open.settle(run, _outcome(run, report))
        self._hand_out()

    def recalled(self, run: ChildRun) -> None:
        """Give back a letter that will not begin."""
        self._open.settle(run, run.recalled or STOPPED)

    def broken(self, child: Child) -> None:
        """Give the child no more letters."""
        self._dismiss(child)

    def buried(self, child: Child) -> None:
        """
        Settle the letter that died with its child; replace the child if letters wait.

        That is the first one that is neither reported nor marked as succeeded. Those behind it had not begun.
        The loss is the letter's even if the child dies before it has read the letter: reading a letter that
        does not fit into memory also kills a child, and such a letter must not kill one child after the other.
        """
        stillborn = child in self._children and not child.is_ready
        self._dismiss(child)
        self._limits.count(child, None)
        self._dying.discard(child)
        if not self._dying:
            self._all_buried.set()
        victim = child.sent.popleft() if child.sent else None
        self._take_back(child)
        if victim is not None:
            given_back = None if child.has_begun(victim) else victim.recalled
            self._open.settle(victim, given_back or Lost(child.fate))
        elif stillborn:
            self._cannot_start(child.fate)
        self._hand_out()

    # ------------------------------------------------------------------ births and deaths

    def _spawn(self) -> bool:
        try:
            child = Child(self, self._lifeline.end, _START_LIMIT)
        except OSError as error:
            self._cannot_start(str(error))
            return False
        self._children.add(child)
        return True

    def _cannot_start(self, why: str) -> None:
        if (outcome := self._starts.failed(why)) is not None:
            waiting, self._waiting = self._waiting, deque()
            for run in itertools.chain.from_iterable(waiting):
                self._open.settle(run, outcome)

    def _dismiss(self, child: Child) -> None:
        """Take *child* out of service; it is in `_dying` until it is buried."""
        if child in self._children:
            self._children.discard(child)
            self._dying.add(child)
            self._all_buried.clear()
        if child in self._idle:
            self._idle.remove(child)
        self._unprepared.pop(child, None)

    async def _bury_all(self) -> None:
        for limit in (_GOODBYE, _GOODBYE):
            if not self._dying:
                return
            try:
                async with asyncio.timeout(limit):
                    await self._all_buried.wait()
            except TimeoutError:
                for child in self._dying:
                    child.kill()


def _outcome(run: ChildRun, report: Report) -> Outcome:
    if report.recalled:
        return run.recalled or STOPPED
    return SUCCEEDED if report.failure is None else Failed(report.failure)


def _is_soon_free(child: Child, run: ChildRun) -> bool:
    """Whether *run*, which *child* runs, is so short that a letter may wait for its end."""
    return run.pace.is_quick and run.recipe in child.recipes and not child.is_receiving


def _ignored(_ticket: object, _outcome: Outcome) -> None:
    pass
