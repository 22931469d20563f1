"""
Run async handlers on the event loop.

Owns eager start, time limits and cancellation of tasks. A handler cannot tell that it was
started eagerly: it has a task and a context of its own from its first line. A handler that
blocks the loop cannot be stopped from here; a watchdog ends the process.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from redrive.core.decide import SUCCEEDED, Failed
from redrive.engine.attempt import attempt, failure_of, timed_out
from redrive.engine.execution import STOPPED
from redrive.engine.ledger import Ledger, Run
from redrive.engine.limits import Limit

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from redrive.core.decide import Outcome
    from redrive.core.letter import Letter
    from redrive.engine.attempt import Listener
    from redrive.engine.execution import Done
    from redrive.engine.handler import Handler

T = TypeVar("T")

_GRACE = 1.0  # seconds that a cancelled handler has to clean up

if sys.version_info >= (3, 12):

    def begin(
        coroutine: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Start *coroutine* as a task of its own, at once where Python can."""
        return asyncio.Task(coroutine, loop=loop, context=context, eager_start=True)

else:

    def begin(
        coroutine: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Start *coroutine* as a task of its own, at once where Python can."""
        return asyncio.Task(coroutine, loop=loop, context=context)


class _TaskRun(Run, eq=False, kw_only=True):
    task: asyncio.Task[Outcome]
    limit: Limit[_TaskRun] | None = None
    verdict: Failed | None = None  # why we cancelled it


class TaskEngine:
    """
    Runs each letter in a task of its own; one that never suspends costs no callback and no timer.

    A task tells of its end itself, as its last step, and may so begin the next one from within:
    therefore all of them start from one context, that of whoever made the engine.
    """

    exhausted = False

    def __init__(self, *, cancel_grace: float = _GRACE) -> None:
        self._cancel_grace = cancel_grace
        self._context = contextvars.copy_context()
        self._ledger: Ledger[_TaskRun] = Ledger()
        self._leftovers: set[asyncio.Task[Outcome]] = set()  # settled, but still unwinding
        self._limits: dict[float, Limit[_TaskRun]] = {}  # by span
        self._closed = False

    def start(self, handler: Handler, letter: Letter, ticket: object, done: Done) -> None:
        """Run *letter*; see `Engine.start`."""
        if self._closed:
            done(ticket, STOPPED)
            return
        loop = asyncio.get_running_loop()
        listeners: list[Listener] = []  # nobody, unless it suspends
        task = begin(attempt(handler, letter, listeners), loop, self._context.copy())
        if task.done():
            done(ticket, _outcome(task, handler))
            return
        run = _TaskRun(handler, letter, ticket, done, task=task)
        listeners.append(partial(self._finished, run))
        self._watch(run, loop)

    async def close(self, grace: float) -> None:
        """Wait up to *grace* seconds, then cancel what is left; see `Engine.close`."""
        self._closed = True
        await self._ledger.drain(grace)
        self.interrupt()
        if self._leftovers:
            await asyncio.wait(self._leftovers, timeout=self._cancel_grace)

    def interrupt(self) -> None:
        """Cancel everything; its outcome is Interrupted at once."""
        self._closed = True
        for limit in self._limits.values():
            limit.close()
        for run in self._ledger:
            self._abandon(run)
            self._ledger.settle(run, STOPPED)

    def _watch(self, run: _TaskRun, loop: asyncio.AbstractEventLoop) -> None:
        self._ledger.open(run)
        span = run.handler.timeout
        if span is not None:
            run.limit = self._limits.get(span) or self._limits.setdefault(span, Limit(span, self._expire, loop))
            run.limit.hold(run)

    def _finished(self, run: _TaskRun, outcome: Outcome | None) -> None:
        if outcome is None:  # cancelled; it is not known by whom until it has ended
            run.task.add_done_callback(lambda task: self._finished(run, _outcome(task, run.handler)))
            return
        if run.limit is not None:
            run.limit.let_go(run)
        # What it finished in spite of its time limit is finished: trying again would do it twice.
        self._ledger.settle(run, outcome if run.verdict is None or outcome is SUCCEEDED else run.verdict)

    def _expire(self, run: _TaskRun) -> None:
        if run.task.done():  # in this very round; its own outcome counts
            return
        run.verdict = timed_out(run.handler)
        run.timer = asyncio.get_running_loop().call_later(self._cancel_grace, self._give_up, run)
        run.task.cancel("timed out")

    def _give_up(self, run: _TaskRun) -> None:
        """Settle a handler that swallowed its cancellation; whatever it still does is ignored."""
        self._abandon(run)
        self._ledger.settle(run, timed_out(run.handler))

    def _abandon(self, run: _TaskRun) -> None:
        self._leftovers.add(run.task)  # the loop keeps weak references only
        run.task.add_done_callback(self._leftovers.discard)
        run.task.cancel("stopped")


def _outcome(task: asyncio.Task[Outcome], handler: Handler) -> Outcome:
    try:
        return task.result()
    except asyncio.CancelledError:  # not by us, or nobody would ask: it cancelled itself
        return Failed(failure_of(asyncio.CancelledError("the handler cancelled its own task"), handler))
    except BaseException as error:  # noqa: BLE001 - what `attempt` lets pass, such as a GeneratorExit of the handler's own
        return Failed(failure_of(error, handler))
