"""
Run handlers in child processes.

Owns a pool of children and which letter runs in which. A child runs one letter at a time, so that its death is the
outcome of exactly that letter. The pool spawns children when letters wait, or earlier if asked. A letter whose child
dies is Lost. A letter that is out of time has failed, and the pool kills its child. Siblings notice neither.

When all children are busy with short letters, the pool may send each of them one letter ahead, so that a child need
not wait for the pool between two letters. A letter sent ahead has not begun and its time does not count; if the child
ends before the letter begins, the letter is first in line again. Knows no store and no decision.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict, deque
from typing import TYPE_CHECKING

import msgspec

from redrive.core.decide import SUCCEEDED, Failed, Interrupted, Lost
from redrive.core.why import Why
from redrive.engine.attempt import failure_of, timed_out
from redrive.engine.clock import SystemClock
from redrive.engine.import_names import address_of, class_name
from redrive.engine.runners.contract import STOPPED
from redrive.engine.runners.pace import Pace
from redrive.engine.runners.processes.child import Child, ChildRun
from redrive.engine.runners.processes.frames import Recipe
from redrive.engine.runners.runs import OpenRuns
from redrive.engine.runners.timeouts import Limit

if TYPE_CHECKING:
    from collections.abc import Collection

    from redrive.core.decide import Outcome
    from redrive.core.letter import Letter
    from redrive.core.policy import ErrorNames
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import OnOutcome
    from redrive.engine.runners.processes.frames import Report

_START_LIMIT = 60.0  # seconds that a child has to start, and to import a handler
_FEW_FAILURES = 3  # starts that fail in a row before waiting letters are given back
_FIRST_REST, _LONGEST_REST = 0.2, 30.0  # seconds between starts that fail
_GOODBYE = 2.0  # seconds that an idle child has to end by itself
_UNSENDABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


class ProcessEngine:
    """Runs letters in up to *size* child processes."""

    exhausted = False
    vacant = False
    leftovers: list[str] = []  # noqa: RUF012 - none, ever: children are killed

    def __init__(self, size: int, *, clock: Clock | None = None) -> None:
        self._size = size
        self._clock = clock or SystemClock()
        self._open: OpenRuns[ChildRun] = OpenRuns()
        self._waiting: deque[ChildRun] = deque()
        self._recipes: dict[Handler, bytes] = {}
        self._paces: defaultdict[Handler, Pace] = defaultdict(Pace)
        self._limits: dict[float, Limit[Child]] = {}  # by span
        self._children: set[Child] = set()  # alive and well, or starting
        self._idle: list[Child] = []
        self._unprepared: dict[Child, Handler] = {}  # started early; the handler that each imports first
        self._dying: set[Child] = set()
        self._all_buried = asyncio.Event()  # nothing is dying
        self._failures = 0  # starts that failed in a row
        self._rest: asyncio.TimerHandle | None = None
        self._lifeline: tuple[int, int] | None = None  # children die when our end closes
        self._closed = False

    def start(self, handler: Handler, item: Letter, ticket: object, done: OnOutcome) -> None:
        """Run *item* in the next free child; see `Engine.start`."""
        if self._closed:
            done(ticket, STOPPED)
            return
        self._waiting.append(self._opened(handler, item, ticket, done))
        self._hand_out()

    def prepare(self, handler: Handler) -> None:
        """Start all children now and let them import *handler*, so that no letter waits for that."""
        while len(self._children) < self._size and self._spawn():
            pass
        self._unprepared = {child: handler for child in self._children if not child.is_ready}

    async def close(self, grace: float) -> None:
        """Wait up to *grace* seconds, then kill what is left; see `Engine.close`."""
        self._closed = True
        await self._open.drain(grace)
        self.interrupt()
        await self._bury_all()
        self._cut_lifeline()

    def interrupt(self) -> None:
        """Kill every child that is not idle; idle ones may end by themselves."""
        self._closed = True
        self._waiting.clear()
        for limit in self._limits.values():
            limit.close()
        idle = tuple(self._idle)
        if self._rest is not None:
            self._rest.cancel()
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
        for child in self._children:
            if child.ahead is not None and child.ahead.item.queue in queues:
                child.recall(why)
        recalled = [run for run in self._waiting if run.item is not None and run.item.queue in queues]
        for run in recalled:
            self._waiting.remove(run)
        for run in recalled:
            self._open.settle(run, why)

    # ------------------------------------------------------------------ handing out

    def _hand_out(self) -> None:
        while self._waiting and self._idle:
            self._give(self._idle.pop(), self._waiting.popleft())
        if self._waiting and len(self._children) < self._size:
            self._grow()
        while self._waiting and (child := self._busy_child_for(self._waiting[0])) is not None:
            self._give(child, self._waiting.popleft())

    def _grow(self) -> None:
        starting = sum(not child.is_ready for child in self._children)
        wanted = min(len(self._waiting), 1 if self._failures else self._size)  # after a failure one at a time
        while starting < wanted and len(self._children) < self._size and self._rest is None:
            starting += self._spawn()

    def _busy_child_for(self, run: ChildRun) -> Child | None:
        """Return a child that may be sent *run* ahead; none while a child is idle or about to be."""
        found = None
        for child in self._children:
            if child.run is None:
                return None
            if child.ahead is None and run.recipe in child.recipes and _is_soon_free(child, child.run):
                found = child
        return found

    def _give(self, child: Child, run: ChildRun) -> None:
        try:
            child.give(run)
        except ConnectionError:  # it has died a moment ago; this letter has not run
            self._waiting.appendleft(run)
            self.broken(child)
            return
        except _UNSENDABLE as error:
            if child.run is None:
                self._idle.append(child)
            self._open.settle(run, Failed(failure_of(error, run.handler)))
            return
        if run is child.run:  # a letter that was sent ahead has not begun, so its time does not count yet
            self._limit(child, run, 0.0 if run.recipe in child.recipes else _START_LIMIT)

    def _limit(self, child: Child, run: ChildRun | None, extra: float = 0.0) -> None:
        """Count the time of *run*, which begins in *child*, from now."""
        span = None if run is None or run.handler.timeout is None else run.handler.timeout + extra
        limit = None if span is None else self._limits.get(span) or self._new_limit(span)
        if child.limit is not None and child.limit is not limit:
            child.limit.let_go(child)
        child.limit = limit
        if limit is not None:
            limit.hold(child)

    def _new_limit(self, span: float) -> Limit[Child]:
        limit = self._limits[span] = Limit(span, self._expire, self._clock.timers())
        return limit

    def _expire(self, child: Child) -> None:
        run = child.run
        if run is None:
            return
        self._dismiss(child)
        child.retire()  # first: a report that arrives now must not begin the next letter in a child that we kill
        child.kill()
        self._take_back(child)
        self._open.settle(run, timed_out(run.handler))
        self._hand_out()

    def _take_back(self, child: Child) -> None:
        """Put what was sent ahead first in line again; its child is dead, or killed and no longer read."""
        run, child.ahead = child.ahead, None
        if run is not None and run in self._open:
            if run.recalled is None:
                self._waiting.appendleft(run)
            else:
                self._open.settle(run, run.recalled)

    def _opened(self, handler: Handler, letter: Letter | None, ticket: object, done: OnOutcome) -> ChildRun:
        recipe = self._recipes.get(handler)
        if recipe is None:
            recipe = self._recipes[handler] = msgspec.msgpack.encode(_recipe_of(handler))
        run = ChildRun(handler, letter, ticket, done, recipe=recipe, pace=self._paces[handler])
        self._open.open(run)
        return run

    # ------------------------------------------------------------------ what children report

    def ready(self, child: Child) -> None:
        """Take up a child that has started."""
        self._failures = 0
        handler = self._unprepared.pop(child, None)
        if handler is None:
            self._idle.append(child)
        else:  # if that fails, the first letter meets the same error and reports it
            order = self._opened(handler, None, None, _ignored)  # no letter: it only imports the handler
            self._give(child, order)
        self._hand_out()

    def begins(self, child: Child) -> None:
        """Count the time limit from here: the child had to import its handler first."""
        if child.run is not None:
            child.recipes.add(child.run.recipe)
            self._limit(child, child.run)

    def reported(self, child: Child, run: ChildRun, report: Report) -> None:
        """Settle the letter that the child ran, and give it the next."""
        if not report.recalled:
            run.pace.note(report.took)
        self._limit(child, child.run)  # what was sent ahead, if anything, begins
        if child.run is None and child in self._children:
            self._idle.append(child)
        self._open.settle(run, _outcome(run, report))
        self._hand_out()

    def broken(self, child: Child) -> None:
        """Give the child no more letters."""
        self._dismiss(child)

    def buried(self, child: Child) -> None:
        """
        Settle the letter that died with its child; replace the child if letters wait.

        A letter that was sent ahead had not begun: a child begins it only after it has reported the one
        before. After that report the loss is the letter's, even if the child dies before it has read the
        letter: reading a letter that does not fit into memory also kills a child, and such a letter must
        not kill one child after the other.
        """
        stillborn = child in self._children and not child.is_ready
        self._dismiss(child)
        self._limit(child, None)
        self._dying.discard(child)
        if not self._dying:
            self._all_buried.set()
        self._take_back(child)
        if child.run is not None:
            self._open.settle(child.run, Lost(child.fate))
        elif stillborn:
            self._cannot_start(child.fate)
        self._hand_out()

    # ------------------------------------------------------------------ births and deaths

    def _spawn(self) -> bool:
        if self._lifeline is None:
            self._lifeline = os.pipe()
        try:
            child = Child(self, self._lifeline[0], _START_LIMIT)
        except OSError as error:
            self._cannot_start(str(error))
            return False
        self._children.add(child)
        return True

    def _cannot_start(self, why: str) -> None:
        """Rest before the next try, longer each time; give waiting letters back after a few failures."""
        self._failures += 1
        rest = min(_FIRST_REST * 2.0 ** min(self._failures, 16), _LONGEST_REST)
        if self._rest is not None:
            return
        self._rest = asyncio.get_running_loop().call_later(rest, self._rested)
        if self._failures >= _FEW_FAILURES:
            outcome = Interrupted(Why.NO_WORKER_PROCESS.naming(why), wait=rest)
            waiting, self._waiting = self._waiting, deque()
            for run in waiting:
                self._open.settle(run, outcome)

    def _rested(self) -> None:
        self._rest = None
        self._hand_out()

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

    def _cut_lifeline(self) -> None:
        if self._lifeline is not None:
            for end in self._lifeline:
                os.close(end)
            self._lifeline = None


def _outcome(run: ChildRun, report: Report) -> Outcome:
    if report.recalled:
        return run.recalled or STOPPED
    return SUCCEEDED if report.failure is None else Failed(report.failure)


def _is_soon_free(child: Child, run: ChildRun) -> bool:
    """Whether *run*, which *child* runs, is so short that a letter may wait for its end."""
    return run.pace.is_quick and run.recipe in child.recipes and not child.is_receiving


def _recipe_of(handler: Handler) -> Recipe:
    return Recipe(
        kind=handler.kind,
        address=address_of(handler.function),
        succeeded=None if handler.succeeded is None else address_of(handler.succeeded),
        terminal_errors=_names(handler.policy.terminal_errors),
        retryable_errors=_names(handler.policy.retryable_errors),
        rules=handler.rules,
    )


def _ignored(_ticket: object, _outcome: Outcome) -> None:
    pass


def _names(errors: ErrorNames) -> tuple[str, ...]:
    return tuple(each if isinstance(each, str) else class_name(each) for each in errors)
