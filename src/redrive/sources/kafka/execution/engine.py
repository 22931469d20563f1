"""
One work item in, one completion out.

Owns the tries of a work item: it runs in a slot, a failure is decided upon by the same rule
as everywhere, and a retry waits in a heap outside the slots. The tries themselves run in the
engines of `redrive.engine`. Knows no order, no offsets, no Kafka client.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from redrive.core.decide import SUCCEEDED, Interrupted, decide
from redrive.core.letter import Status
from redrive.engine.clock import SystemClock
from redrive.engine.handler import Handler, build_handler
from redrive.engine.import_names import name_of
from redrive.engine.runners.processes.pool import ProcessEngine
from redrive.engine.runners.tasks import TaskEngine
from redrive.engine.runners.threads import ThreadEngine
from redrive.errors import HandlerError
from redrive.sources.kafka.execution.process_calls import letter_of, wrapped
from redrive.sources.kafka.execution.worker_factory import called, made, unreachable
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus, error_text, failed
from redrive.sources.kafka.records.delay_queue import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redrive.core.decide import Outcome
    from redrive.core.letter import Letter
    from redrive.core.moves import Move
    from redrive.engine.clock import Clock
    from redrive.engine.runners.contract import Engine
    from redrive.sources.kafka.config import ExecutionConfig
    from redrive.sources.kafka.execution.worker_factory import WorkerFactory
    from redrive.sources.kafka.records.record import Assignment, Record

    Worker = Callable[[Record], Any] | WorkerFactory
    Completed = Callable[[CompletionEvent], Record | None]

_log = logging.getLogger("redrive.kafka")
EXHAUSTED = (
    "as many threads hang in workers that ran out of time as may, and nothing more is begun until one comes back; "
    "let the worker bound what it waits for, and start the consumer anew"
)
_SUCCESS, _RELEASED = CompletionStatus.SUCCESS, CompletionStatus.RELEASED
_BURST = 250  # tries that may end without having waited before the event loop has its turn: some milliseconds


class ExecutionEngine:
    """
    Runs work items, each to exactly one CompletionEvent; all methods are called on the event loop's thread.

    SUCCESS carries the try that succeeded; FAILURE the last try and its error; RELEASED is a
    work item that was given up unhandled because its partition or the engine goes. Whoever
    sets `completed` hears of each, and may return a record to run next; whoever sets `broke` hears
    of errors that are no worker's, after which some work item may never complete.
    """

    def __init__(
        self,
        engine: Engine[Any],  # runs records, what carries one, or what a subclass makes of them
        handler: Handler[Any],
        carry: Callable[[Record], Letter] | None,
        slots: int,
        *,
        clock: Clock,
    ) -> None:
        self.completed: Completed = _nobody_listens
        self.broke: Callable[[Exception], None] = _raise
        self.running = 0
        self.retries = 0  # tries that failed and will be repeated
        self.slots = slots  # how many may run at once; whoever adapts it sets it
        self.runner, self._handler, self._carry, self._clock = engine, handler, carry, clock
        self._policy = handler.policy
        self._processes = engine if isinstance(engine, ProcessEngine) else None
        self._ready: deque[Record] = deque()
        self._waiting: Waiting[Record] = Waiting()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0
        self._pumping = False
        self._turn = 0  # of the event loop; those in which nothing begins are not counted
        self._turn_ends = False  # … and we hear when
        self._left = _BURST  # tries that may still begin and end in this turn
        self._closed = False
        self._is_told = False  # … that nothing runs any more

    @property
    def waiting(self) -> int:
        """How many work items wait for their next try, outside of the slots."""
        return len(self._waiting)

    @property
    def exhausted(self) -> bool:
        """Whether it takes no more work until the process is recycled: too many threads hang."""
        return self.runner.exhausted

    @property
    def next_due(self) -> float | None:
        """When the next of them is tried, by its clock."""
        return self._waiting.next_due

    def wake(self) -> None:
        """Try what is due by now; it does so by itself, unless its clock is moved by hand."""
        if self._timer is not None:
            self._timer.cancel()
        self._wake()

    def prepare(self) -> None:
        """Begin what would keep the first work items waiting: processes start, and import the worker."""
        if self._processes is not None:
            self._processes.prepare(self._handler)

    def submit(self, records: Iterable[Record]) -> None:
        """Run *records* as soon as there are slots, in this order; completions may come before this returns."""
        self._ready.extend(records)
        self._pump()

    def release(self, assignment: Assignment) -> int:
        """Give up what has not begun, or waits for a retry, of a partition that goes; return how many."""
        assignment.leaving = True
        kept = [record for record in self._ready if record.assignment is not assignment]
        dropped = len(self._ready) - len(kept)
        self._ready = deque(kept)
        return dropped + len(self._waiting.remove(lambda record: record.assignment is assignment))

    def forget(self, record: Record) -> None:
        """Try *record*, which has ended otherwise, no more; a try that is under way keeps its slot until it ends."""
        if record in self._ready:
            self._ready.remove(record)
        self._waiting.remove(lambda each: each is record)

    async def close(self, grace: float) -> None:
        """Begin nothing more, wait up to *grace* seconds for what runs, then stop it; may be called twice."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._ready.extend(self._waiting.remove(lambda _record: True))
        while self._ready:  # those that follow in their lanes included
            self._release(self._ready.popleft())
        await self.runner.close(grace)

    # ------------------------------------------------------------------ one try

    def _pump(self) -> None:
        """Fill the slots; tries that end at once, and what follows, are handled in this same loop, up to a burst."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._ready and self._has_room():
                self._begin_next()
        finally:
            self._pumping = False

    def _has_room(self) -> bool:
        """Whether a try may begin: a slot is free, and nobody else has waited for the event loop too long."""
        return self.running < self.slots and self._left > 0

    def _begin_next(self) -> None:
        self._begin(self._ready.popleft())

    def _begin(self, record: Record) -> None:
        if self._closed:
            self._release(record)
            return
        if not self._turn_ends:
            self._hear_of_its_end()
        self.running += 1
        record.attempts += 1
        record.turn = self._turn
        if self._policy.total is not None and not record.began:
            record.began = self._clock.monotonic()
        item = record if self._carry is None else self._carry(record)
        self.runner.start(self._handler, item, record, self._ended)

    def _ended(self, record: Record, outcome: Outcome) -> None:
        self.running -= 1
        self._left -= record.turn == self._turn
        try:
            if outcome is SUCCEEDED:
                follower = self.completed(CompletionEvent(record, _SUCCESS, record.attempts))
                if follower is not None:
                    self._ready.append(follower)
            else:
                self._decide(record, outcome)
            if self._ready:
                self._go_on()
        except Exception as error:  # noqa: BLE001 - nobody above would say it: a task or a thread called this
            self.broke(error)

    def _go_on(self) -> None:
        """Begin what can begin now; what begins in the place of what has just ended makes no pile of calls."""
        if self.runner.vacant and self._has_room() and not self._closed:
            self._begin_next()  # runs when this returns; others would overtake it, and begin in the next turn
        elif not self._pumping:
            self._pump()

    def _decide(self, record: Record, outcome: Outcome) -> None:
        if record.ended:  # it was given up while this try was under way
            return
        now = self._clock.monotonic()
        age = now - record.began if record.began else 0.0
        record.first_failed = record.first_failed or now
        move = decide(record, outcome, self._policy, self._clock.draw(), age=age)
        if move.to is Status.FAILED:
            self._give_up(record, move)
            return
        record.losses += move.loss
        if move.to is Status.DELIVERED:
            self._tell(CompletionEvent(record, _SUCCESS, record.attempts))
        elif self._closed or record.assignment.leaving:
            self._release(record)
        else:
            self._wait(record, outcome, move, now)

    def _give_up(self, record: Record, move: Move) -> None:
        event = failed(record, move)
        form = "%s failed for good after attempt %d (%s): %s"
        _log.warning(form, repr(record), event.attempt, move.why, event.error)
        self._tell(event)

    def _release(self, record: Record) -> None:
        self._tell(CompletionEvent(record, _RELEASED, record.attempts))

    def _tell(self, event: CompletionEvent) -> None:
        follower = self.completed(event)
        if follower is not None:
            self._ready.append(follower)

    # ------------------------------------------------------------------ turns of the event loop

    def _hear_of_its_end(self) -> None:
        self._turn_ends = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """Go on, now that everybody else on the event loop had a turn."""
        self._turn_ends = False
        self._turn += 1
        self._left = _BURST
        try:
            self._pump()
        except Exception as error:  # noqa: BLE001 - nobody above would say it: the event loop called this
            self.broke(error)

    # ------------------------------------------------------------------ between two tries

    def _wait(self, record: Record, outcome: Outcome, move: Move, now: float) -> None:
        self.retries += move.failure is not None
        if self.exhausted:
            self._tell_exhausted()
        if _log.isEnabledFor(logging.INFO) and not isinstance(outcome, Interrupted):
            error = error_text(move.failure) if move.failure else move.why
            form = "%s failed at attempt %d of %d, next try in %.3f s: %s"
            _log.info(form, repr(record), record.attempts, self._policy.max_attempts, move.delay, error)
        record.attempts -= not move.counts
        self._waiting.push(now + move.delay, record)
        self._arm(now)

    def _tell_exhausted(self) -> None:
        if not self._is_told:
            self._is_told = True
            _log.error("%s", EXHAUSTED)

    def _arm(self, now: float) -> None:
        """See to it that we wake when the first retry is due; a timer that rings before that is left alone."""
        due = self._waiting.next_due
        if due is None or (self._timer is not None and self._rings_at <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = due
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        try:
            self._ready.extendleft(reversed(self._waiting.pop_due(now)))  # they hold back their keys: first
            self._pump()
            self._arm(now)
        except Exception as error:  # noqa: BLE001 - nobody above would say it: the event loop called this
            self.broke(error)


class AsyncExecutionEngine(ExecutionEngine):
    """
    Runs an async worker in tasks of the event loop, and any other worker in threads.

    *config* says how many at once, how long a try may take and how often to try.
    """

    def __init__(self, worker: Worker, config: ExecutionConfig, *, clock: Clock | None = None) -> None:
        worker = made(worker)
        in_tasks = is_async(worker)
        engine: Engine[Record] = TaskEngine() if in_tasks else ThreadEngine(config.worker_pool_size)
        slots = config.max_in_flight if in_tasks else min(config.max_in_flight, 2 * config.worker_pool_size)
        super().__init__(engine, plain_handler(worker, config), None, slots, clock=clock or SystemClock())


class ProcessExecutionEngine(ExecutionEngine):
    """
    Runs a worker in child processes, one work item each at a time.

    A process that dies costs exactly the work item that it ran a try; one that is out of time
    is killed. The worker must be a function at the top level of a module, or come from a `WorkerFactory`.
    """

    def __init__(self, worker: Worker, config: ExecutionConfig, *, clock: Clock | None = None) -> None:
        refuse_unreachable(worker)
        handler = build_handler(
            "kafka", wrapped(worker), engine="process", policy=config.policy, timeout=config.timeout, rules=config.rules
        )
        slots = min(config.max_in_flight, 2 * config.process_count)
        super().__init__(ProcessEngine(config.process_count), handler, letter_of, slots, clock=clock or SystemClock())


def refuse_unreachable(worker: Callable[[Any], Any] | WorkerFactory) -> None:
    """Raise HandlerError, with the way out, if worker processes cannot have *worker*."""
    if why := unreachable(worker):
        raise HandlerError(
            f"cannot run {called(worker)!r} in worker processes: it is {why}; define it at the top level of a "
            "module, let a WorkerFactory make it there, or use mode='async'"
        )


def engine_for(
    worker: Callable[[Any], Any] | WorkerFactory, config: ExecutionConfig, *, clock: Clock | None = None
) -> ExecutionEngine:
    """Return the engine that *config* asks for."""
    if config.batch_size is not None:
        from redrive.sources.kafka.execution.batches import BatchExecutionEngine  # noqa: PLC0415 - it builds on this file

        return BatchExecutionEngine(worker, config, clock=clock)
    kind = ProcessExecutionEngine if config.mode == "process" else AsyncExecutionEngine
    return kind(worker, config, clock=clock)


def plain_handler(
    worker: Callable[[Any], Any], config: ExecutionConfig, call: Callable[[Any], Any] | None = None
) -> Handler[Any]:
    """Return a handler whose *call*, or *worker*, gets what the engine was given: tasks and threads pass it on."""
    try:
        inspect.signature(worker).bind(None)
    except (TypeError, ValueError) as error:
        raise HandlerError(f"cannot use {worker!r} as a worker: {error}; it is called with one record") from None
    return Handler(
        kind="kafka", function=worker, call=call or worker, name=name_of(worker), wants_letter=True,
        engine="async" if is_async(worker) else "thread", queue="kafka", policy=config.policy,
        timeout=config.timeout, concurrency=None, breaker=None, succeeded=None, rules=config.rules,
    )  # fmt: skip


def is_async(worker: Callable[[Any], Any]) -> bool:
    """Whether calling *worker* gives something to await."""
    return inspect.iscoroutinefunction(worker) or (
        callable(worker) and inspect.iscoroutinefunction(type(worker).__call__)
    )


def _nobody_listens(_event: CompletionEvent) -> None:
    pass


def _raise(error: Exception) -> None:
    raise error
