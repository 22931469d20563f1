"""
Run async handlers on the event loop.

Owns eager start, time limits and cancellation of tasks, and when a task may run another item. A handler cannot
notice that it was started eagerly, or that its task ran other items before: from its first line it sees a clean
task and a clean context. A handler that blocks the event loop cannot be stopped from here; the watchdog ends the
process. Knows no store and no decision.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redrive.core.decide import SUCCEEDED, Failed
from redrive.engine.attempt import attempt_each, failure_of, timed_out
from redrive.engine.clock import SystemClock
from redrive.engine.eager_start import begin
from redrive.engine.runners.contract import STOPPED
from redrive.engine.runners.runs import OpenRuns, Run
from redrive.engine.runners.timeouts import Limit

if TYPE_CHECKING:
    from collections.abc import Collection

    from redrive.core.decide import Interrupted, Outcome
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import OnOutcome

T = TypeVar("T")

_GRACE = 1.0  # seconds that a cancelled handler has to clean up


class _TaskRun(Run, eq=False, kw_only=True):
    """A task, and the item that it runs now."""

    own: asyncio.Task[Any] | None = None  # the task
    task: asyncio.Task[None] | None = None  # the same, once it has suspended; from then on it is an open run
    began: float = 0.0  # kept by its limit
    limit: Limit[_TaskRun] | None = None
    verdict: Failed | None = None  # why we cancelled it


class TaskEngine(Generic[T]):
    """
    Runs items in tasks; one that never suspends costs no callback and no timer.

    A task itself calls `done` for its item. An item that the caller starts from within that call runs next in the
    same task, if the item before left no trace there; every other item gets a task of its own. All tasks start
    from one context: the one in which the engine was made.
    """

    exhausted = False

    def __init__(self, *, cancel_grace: float = _GRACE, clock: Clock | None = None) -> None:
        self._cancel_grace = cancel_grace
        self._clock = clock or SystemClock()
        self._context = contextvars.copy_context()
        self._open: OpenRuns[_TaskRun] = OpenRuns()
        self._leftovers: dict[asyncio.Task[None], str] = {}  # settled, but still unwinding; the name of the handler
        self._limits: dict[float, Limit[_TaskRun]] = {}  # by span
        self._vacant: _TaskRun | None = None  # calls `done` right now, and could run another item
        self._closed = False

    @property
    def vacant(self) -> bool:
        """See `Engine.vacant`."""
        return self._vacant is not None

    def start(self, handler: Handler[T], item: T, ticket: object, done: OnOutcome) -> None:
        """Run *item*; see `Engine.start`."""
        run = self._vacant
        if self._closed:
            done(ticket, STOPPED)
        elif run is not None and run.handler is handler:
            self._vacant = None
            run.item, run.ticket, run.done = item, ticket, done
        else:
            self._begin(_TaskRun(handler, item, ticket, done))

    async def close(self, grace: float) -> None:
        """Wait up to *grace* seconds, then cancel what is left; see `Engine.close`."""
        self._closed = True
        await self._open.drain(grace)
        self.interrupt()
        if self._leftovers:
            await asyncio.wait(self._leftovers.keys(), timeout=self._cancel_grace)
        for task in self._leftovers:
            _disown(task)

    def recall(self, queues: Collection[str], why: Interrupted) -> None:
        """Do nothing: an item begins when it is started."""

    @property
    def leftovers(self) -> list[str]:
        """See `Engine.leftovers`."""
        return sorted(self._leftovers.values())

    def interrupt(self) -> None:
        """Cancel everything; its outcome is Interrupted at once."""
        self._closed = True
        for limit in self._limits.values():
            limit.close()
        for run in self._open:
            self._abandon(run)
            self._settle(run, STOPPED)

    # ------------------------------------------------------------------ one task, one item after the other

    def _begin(self, run: _TaskRun) -> None:
        loop = asyncio.get_running_loop()
        task = begin(self._serve(run), loop, self._context.copy())
        if not task.done():
            self._watch(run, task)
        elif run.done is not _reported:  # a cancellation passed through before it ever suspended
            self._settle(run, _what_passed(task, run.handler))
        elif not task.cancelled():
            task.result()  # raises what `done` raised

    async def _serve(self, run: _TaskRun) -> None:
        """Run the item of *run*, and each item that `done` starts in its place."""
        run.own = asyncio.current_task()
        try:
            await attempt_each(run, self._goes_on)
        except BaseException:
            self._passed(run)
            raise

    def _goes_on(self, run: _TaskRun, outcome: Outcome) -> bool:
        """Report the outcome of *run*; return whether `done` started another item in its place."""
        if run.verdict is not None or not self._is_as_new(run.own):
            self._finished(run, outcome)
            return False
        done, run.done = run.done, _reported
        self._vacant = run
        try:
            done(run.ticket, outcome)
        finally:
            self._vacant = None
        if run.done is _reported or self._closed:
            self._settle(run, STOPPED)
            return False
        if run.limit is not None:
            run.limit.hold(run)
        return True

    def _passed(self, run: _TaskRun) -> None:
        """Give the item of *run* an outcome, too: its task is about to end with an exception."""
        if run.done is _reported:
            self._settle(run, STOPPED)
        elif run.task is not None:  # a cancellation, most likely; its meaning is known when the task has ended
            run.task.add_done_callback(lambda task: self._finished(run, _what_passed(task, run.handler)))

    def _is_as_new(self, task: Any) -> bool:
        """Whether the item that *task* has run left no trace: no cancellation, no callback, no context variable."""
        if task.cancelling() or task._must_cancel or task._callbacks:  # noqa: SLF001 - there is no public way
            return False
        try:
            return contextvars.copy_context() == self._context
        except Exception:  # noqa: BLE001 - it compares values that handlers put there
            return False

    def _finished(self, run: _TaskRun, outcome: Outcome) -> None:
        # A success after the time limit counts: a retry would do the work twice.
        self._settle(run, outcome if run.verdict is None or outcome is SUCCEEDED else run.verdict)

    def _settle(self, run: _TaskRun, outcome: Outcome) -> None:
        """Report *outcome*, unless one was reported before; the task gets no other item."""
        self._open.forget(run)
        if run.limit is not None:
            run.limit.let_go(run)
        done, run.done = run.done, _reported
        done(run.ticket, outcome)

    # ------------------------------------------------------------------ tasks that suspend

    def _watch(self, run: _TaskRun, task: asyncio.Task[None]) -> None:
        run.task = task
        self._open.open(run)
        span = run.handler.timeout
        if span is not None:
            run.limit = self._limits.get(span) or self._new_limit(span)
            run.limit.hold(run)

    def _new_limit(self, span: float) -> Limit[_TaskRun]:
        limit = self._limits[span] = Limit(span, self._expire, self._clock.timers())
        return limit

    def _expire(self, run: _TaskRun) -> None:
        if run.task is None or run.task.done():  # it ended in this iteration of the loop; its own outcome counts
            return
        run.verdict = timed_out(run.handler)
        run.timer = asyncio.get_running_loop().call_later(self._cancel_grace, self._give_up, run)
        run.task.cancel("timed out")

    def _give_up(self, run: _TaskRun) -> None:
        """Settle a handler that swallowed its cancellation; what it does from now on is ignored."""
        self._abandon(run)
        self._settle(run, timed_out(run.handler))

    def _abandon(self, run: _TaskRun) -> None:
        if run.task is None:
            return
        self._leftovers[run.task] = run.handler.name  # and the loop keeps weak references only
        run.task.add_done_callback(lambda task: self._leftovers.pop(task, None))
        run.task.cancel("stopped")


def _disown(task: asyncio.Task[None]) -> None:
    """Let the event loop end without *task*, which swallows its cancellation; `asyncio.run` would wait forever."""
    asyncio.tasks._unregister_task(task)  # noqa: SLF001 - asyncio's way to do so, documented under Extending
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - the worker announces it itself


def _reported(_ticket: object, _outcome: Outcome) -> None:
    """Stand in for the callback of a run whose outcome was reported."""


def _what_passed(task: asyncio.Task[None], handler: Handler[Any]) -> Failed:
    """Return what ended *task*, which `attempt` let pass, as a failure."""
    if task.cancelled():  # not by the engine: the handler cancelled its own task
        return Failed(failure_of(asyncio.CancelledError("the handler cancelled its own task"), handler))
    return Failed(failure_of(task.exception() or RuntimeError("the task ended"), handler))
