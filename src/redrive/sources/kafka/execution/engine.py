"""
One work item in, one completion out.

Owns the tries of a work item. A try takes a slot; `decide` judges a failure as everywhere else; a work item that
waits for its retry takes no slot. The tries themselves run in the engines of `redrive.engine`. Knows no order, no
offsets, no Kafka client.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from redrive.core.decide import SUCCEEDED, Interrupted, decide
from redrive.core.letter import Status
from redrive.engine.clock import SystemClock
from redrive.engine.runners.processes.pool import ProcessEngine
from redrive.engine.runners.tasks import TaskEngine
from redrive.engine.runners.threads import ThreadEngine
from redrive.sources.kafka.execution.adaptive import adapted
from redrive.sources.kafka.execution.handlers import child_handler, plain_handler, refuse_unreachable
from redrive.sources.kafka.execution.process_calls import letter_of, wrapped
from redrive.sources.kafka.execution.retries import WaitingRetries
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus, error_text, failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redrive.core.decide import Outcome
    from redrive.core.letter import Letter
    from redrive.core.moves import Move
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import Engine
    from redrive.signals.otel import OpenTelemetry
    from redrive.sources.kafka.config import ExecutionConfig
    from redrive.sources.kafka.execution.handlers import Worker
    from redrive.sources.kafka.records.record import Assignment, Record

    Completed = Callable[[CompletionEvent], Record | None]
    Broke = Callable[[Exception], None]

_log = logging.getLogger("redrive.kafka")
EXHAUSTED = (
    "worker threads are stuck past their timeout, as many as there may be; no record starts until one returns: "
    "add timeouts to the worker's own calls and restart the consumer"
)
_SUCCESS, _REVOKED = CompletionStatus.SUCCESS, CompletionStatus.REVOKED
_BURST = 250  # tries that may begin and end in one iteration of the event loop: some milliseconds


class ExecutionEngine:
    """
    Runs work items, each to exactly one CompletionEvent; all methods are called on the event loop's thread.

    SUCCESS carries the try that succeeded, FAILURE the last try and its error. A REVOKED work item was given up
    unhandled, because its partition was revoked or the engine closes. `connect` sets who gets the completions.
    """

    def __init__(
        self,
        runner: Engine[Any],  # runs records, what carries one, or what a subclass makes of them
        handler: Handler[Any],
        carry: Callable[[Record], Letter] | None,
        slots: int,
        *,
        clock: Clock,
        adaptive: ExecutionConfig | None = None,
    ) -> None:
        self.running = 0
        self.retries = 0  # tries that failed and will be repeated
        self.slots = slots  # work items that may run at once; the adaptive engine changes it
        self._handler, self._carry, self._clock = handler, carry, clock
        self.runner = runner if adaptive is None else adapted(runner, self, adaptive, clock)
        self._completed: Completed = _ignore
        self._broke: Broke = _raise
        self._policy = handler.policy
        self._is_timed = handler.policy.total is not None  # whether it matters when the first try began
        self._processes = runner if isinstance(runner, ProcessEngine) else None
        self._ready: deque[Record] = deque()
        self._retries = WaitingRetries(clock, self._retry, self._retries_broke)
        self._pumping = False
        self._iteration = 0  # of the event loop; those in which nothing begins are not counted
        self._watches_iteration = False  # whether `_next_iteration` is scheduled
        self._left = _BURST  # tries that may still begin and end in this iteration
        self._closed = False
        self._is_exhaustion_logged = False

    def connect(self, completed: Completed, broke: Broke | None = None) -> None:
        """
        Send every completion to *completed*, which may return a record to run next.

        *broke* gets errors that are not the worker's; after one, some work items may never complete.
        """
        self._completed, self._broke = completed, broke or self._broke

    def trace(self, tracing: OpenTelemetry, group: str) -> None:
        """Put a span around each try from now on."""
        from redrive.signals.otel.engines import Runs, TracedEngine, TracedProcesses  # noqa: PLC0415 - needs `otel`
        from redrive.sources.kafka.execution.record_spans import RecordSpans  # noqa: PLC0415

        spans = RecordSpans(tracing, group, self._records_of)
        runs = Runs(spans.begin, spans.end)
        inner, self._handler = self.runner, replace(self._handler, call=runs.around(self._handler.call))
        traced = TracedEngine(inner, runs) if self._processes is None else TracedProcesses(inner, runs, _ticket)
        self.runner = cast("Engine[Any]", traced)

    def _records_of(self, item: Any) -> list[Record]:
        """Return the records that a try of *item* runs."""
        return [item]

    @property
    def waiting(self) -> int:
        """Work items that wait for their retry; they take no slot."""
        return len(self._retries)

    @property
    def exhausted(self) -> bool:
        """Whether no work item can start: too many threads are stuck past their timeout."""
        return self.runner.exhausted

    @property
    def next_due(self) -> float | None:
        """When the next retry is due, by the engine's clock."""
        return self._retries.next_due

    def wake(self) -> None:
        """Start the retries that are due; for tests, which move the clock by hand."""
        self._retries.wake()

    def prepare(self) -> None:
        """Start the worker processes and let them import the worker, before the first record arrives."""
        if self._processes is not None:
            self._processes.prepare(self._handler)

    def submit(self, records: Iterable[Record]) -> None:
        """Run *records* as soon as there are slots, in this order; completions may come before this returns."""
        self._ready.extend(records)
        self._pump()

    def revoke(self, assignment: Assignment) -> int:
        """Give up what has not begun, or waits for a retry, of a revoked partition; return how many."""
        assignment.leaving = True
        kept = [record for record in self._ready if record.assignment is not assignment]
        dropped = len(self._ready) - len(kept)
        self._ready = deque(kept)
        return dropped + len(self._retries.remove(lambda record: record.assignment is assignment))

    def forget(self, record: Record) -> None:
        """Do not try *record* again; a running try keeps its slot until it ends."""
        if record in self._ready:
            self._ready.remove(record)
        self._retries.remove(lambda each: each is record)

    async def close(self, grace: float) -> None:
        """Start nothing more, wait up to *grace* seconds for running tries, then stop them; may be called twice."""
        self._closed = True
        self._ready.extend(self._retries.cancel())
        while self._ready:  # giving one back makes the next of its chain ready
            self._give_back(self._ready.popleft())
        await self.runner.close(grace)

    # ------------------------------------------------------------------ one try

    def _pump(self) -> None:
        """Fill the slots; tries that end at once, and the records after them, run in this loop, up to a burst."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._ready and self._has_room():
                self._begin_next()
        finally:
            self._pumping = False

    def _has_room(self) -> bool:
        """Whether a try may begin: a slot is free, and this iteration of the event loop is not too long yet."""
        return self.running < self.slots and self._left > 0

    def _begin_next(self) -> None:
        record = self._ready.popleft()
        if self._closed:
            self._give_back(record)
            return
        if not self._watches_iteration:
            self._watch_iteration()
        self.running += 1
        record.attempts += 1
        record.iteration = self._iteration
        if self._is_timed and not record.began:
            record.began = self._clock.monotonic()
        self._run(record)

    def _run(self, record: Record) -> None:
        item = record if self._carry is None else self._carry(record)
        self.runner.start(self._handler, item, record, self._ended)

    def _ended(self, record: Record, outcome: Outcome) -> None:
        self.running -= 1
        self._left -= record.iteration == self._iteration
        try:
            if outcome is SUCCEEDED:
                follower = self._completed(CompletionEvent(record, _SUCCESS, record.attempts))
                if follower is not None:
                    self._ready.append(follower)
            else:
                self._decide(record, outcome)
            if self._ready:
                self._go_on()
        except Exception as error:  # noqa: BLE001 - a task or a thread called this and would swallow it
            self._broke(error)

    def _go_on(self) -> None:
        """Start what can start now; a record that takes over the ended one's task adds no stack frame."""
        if self._left > 0 and self.running < self.slots and not self._closed and self.runner.vacant:
            self._begin_next()  # it runs when this returns
        elif not self._pumping:
            self._pump()

    def _decide(self, record: Record, outcome: Outcome) -> None:
        if record.ended:  # it was given up while this try ran
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
            self._give_back(record)
        else:
            self._wait(record, outcome, move, now)

    def _give_up(self, record: Record, move: Move) -> None:
        event = failed(record, move)
        form = "%s failed and is given up after attempt %d (%s): %s"
        _log.warning(form, repr(record), event.attempt, move.why, event.error)
        self._tell(event)

    def _give_back(self, record: Record) -> None:
        self._tell(CompletionEvent(record, _REVOKED, record.attempts))

    def _tell(self, event: CompletionEvent) -> None:
        follower = self._completed(event)
        if follower is not None:
            self._ready.append(follower)

    # ------------------------------------------------------------------ iterations of the event loop

    def _watch_iteration(self) -> None:
        self._watches_iteration = True
        asyncio.get_running_loop().call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        """Continue, now that the other callbacks of the event loop have run."""
        self._watches_iteration = False
        self._iteration += 1
        self._left = _BURST
        try:
            self._pump()
        except Exception as error:  # noqa: BLE001 - the event loop called this and would swallow it
            self._broke(error)

    # ------------------------------------------------------------------ between two tries

    def _wait(self, record: Record, outcome: Outcome, move: Move, now: float) -> None:
        self.retries += move.failure is not None
        if self.exhausted:
            self._log_exhaustion()
        if _log.isEnabledFor(logging.INFO) and not isinstance(outcome, Interrupted):
            error = error_text(move.failure) if move.failure else move.why
            form = "%s failed at attempt %d of %d, next try in %.3f s: %s"
            _log.info(form, repr(record), record.attempts, self._policy.max_attempts, move.delay, error)
        record.attempts -= not move.counts
        self._retries.add(record, now, move.delay)

    def _log_exhaustion(self) -> None:
        if not self._is_exhaustion_logged:
            self._is_exhaustion_logged = True
            _log.error("%s", EXHAUSTED)

    def _retries_broke(self, error: Exception) -> None:
        self._broke(error)  # the one that `connect` was given

    def _retry(self, records: list[Record]) -> None:
        self._ready.extendleft(reversed(records))  # they hold back their keys, so they go first
        self._pump()


class AsyncExecutionEngine(ExecutionEngine):
    """
    Runs an async worker in tasks of the event loop, and any other worker in threads.

    *config* sets how many run at once, how long a try may take and how often to try.
    """

    def __init__(self, worker: Worker, config: ExecutionConfig, *, clock: Clock | None = None) -> None:
        handler = plain_handler(worker, config)
        runner, slots = in_process_runner(handler, config)
        super().__init__(runner, handler, None, slots, clock=clock or SystemClock(), adaptive=config)


class ProcessExecutionEngine(ExecutionEngine):
    """
    Runs a worker in child processes, one work item each at a time.

    A process that dies costs only the work item that it ran a try; one whose try times out is killed. The worker
    must be a function at the top level of a module, or come from a `WorkerFactory`.
    """

    def __init__(self, worker: Worker, config: ExecutionConfig, *, clock: Clock | None = None) -> None:
        refuse_unreachable(worker)
        slots = min(config.max_in_flight, 2 * config.process_count)
        super().__init__(
            ProcessEngine(config.process_count), child_handler(worker, config, wrapped), letter_of, slots,
            clock=clock or SystemClock(), adaptive=config,
        )  # fmt: skip


def in_process_runner(handler: Handler[Any], config: ExecutionConfig) -> tuple[Engine[Any], int]:
    """Return the runner for *handler* in this process, tasks or threads, and how many it runs at once."""
    if handler.engine == "async":
        return TaskEngine(), config.max_in_flight
    return ThreadEngine(config.worker_pool_size), min(config.max_in_flight, 2 * config.worker_pool_size)


def _ticket(_letter: Letter, ticket: Any) -> Any:
    return ticket  # the record, or the batch, that the letter carries


def _ignore(_event: CompletionEvent) -> None:
    pass


def _raise(error: Exception) -> None:
    raise error
