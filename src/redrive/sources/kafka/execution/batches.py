"""
Many records in one call.

Owns the batch form of a worker: it takes a list of records, and one call is one try of each. A worker may name the
records that failed; then the others are handled. A batch that fails in any other way (an exception, a timeout, a
process that died) blames no record: its records run again one by one, and only that try counts. Knows no order and
no offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from redrive.core.decide import SUCCEEDED, Failed, Interrupted
from redrive.engine.attempt import failure_of
from redrive.engine.clock import SystemClock
from redrive.engine.runners.processes.pool import ProcessEngine
from redrive.sources.kafka.execution.engine import ExecutionEngine, in_process_runner
from redrive.sources.kafka.execution.handlers import child_handler, is_async, plain_handler, refuse_unreachable
from redrive.sources.kafka.execution.process_calls import batch_letter_of, wrapped_batch
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redrive.core.decide import Outcome
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.engine.runners.contract import Engine
    from redrive.sources.kafka.config import ExecutionConfig
    from redrive.sources.kafka.execution.handlers import Worker
    from redrive.sources.kafka.records.record import Assignment, Record

_SUCCESS = CompletionStatus.SUCCESS


class BatchFailed(Exception):  # public: workers raise it
    """
    Raise it in a batch worker: these records failed, all others of the batch are handled.

    *failed* maps records to their errors, or is a list of records. It does not cross the pipe of a worker process:
    there the batch runs again one by one.
    """

    def __init__(self, failed: Mapping[Record, BaseException] | Iterable[Record]) -> None:
        pairs = failed.items() if isinstance(failed, Mapping) else ((record, self) for record in failed)
        self.failed: dict[Record, BaseException] = dict(pairs)
        super().__init__(f"{len(self.failed)} records of the batch failed")


class _Batch:
    """A running call, the event loop's iteration it began in, and the records that the worker reports as failed."""

    __slots__ = ("failed", "iteration", "records")

    def __init__(self, records: list[Record], iteration: int) -> None:
        self.records, self.iteration = records, iteration
        self.failed: dict[Record, BaseException] | None = None

    def report(self, error: BatchFailed) -> None:
        """Accept *error* only if it names records of this batch: all others would count as handled."""
        if set(error.failed) <= set(self.records):
            self.failed = error.failed


class BatchExecutionEngine(ExecutionEngine):
    """Runs a worker on lists of up to `batch_size` records, each record to exactly one CompletionEvent."""

    def __init__(self, worker: Worker, config: ExecutionConfig, *, clock: Clock | None = None) -> None:
        engine, handler, slots = _parts(worker, config)
        super().__init__(engine, handler, None, slots, clock=clock or SystemClock(), adaptive=config)
        self._size = config.batch_size or 1
        self._crosses = config.mode == "process"
        self._singly: set[Record] = set()  # of batches that failed as a whole

    def revoke(self, assignment: Assignment) -> int:
        """Give up what has not begun of a revoked partition; return how many records that were."""
        self._singly = {record for record in self._singly if record.assignment is not assignment}
        return super().revoke(assignment)

    def _records_of(self, item: _Batch) -> list[Record]:
        return item.records

    def _begin_next(self) -> None:
        self._begin_batch(self._next())

    def _next(self) -> list[Record]:
        batch = [self._ready.popleft()]
        if batch[0] in self._singly:
            return batch
        while self._ready and len(batch) < self._size and self._ready[0] not in self._singly:
            batch.append(self._ready.popleft())
        return batch

    def _begin_batch(self, records: list[Record]) -> None:
        if self._closed:
            for record in records:
                self._give_back(record)
            return
        if not self._watches_iteration:
            self._watch_iteration()
        self.running += 1
        now = self._clock.monotonic()
        for record in records:
            record.attempts += 1
            record.began = record.began or now
        batch = _Batch(records, self._iteration)
        item = batch_letter_of(records) if self._crosses else batch
        self.runner.start(self._handler, item, batch, self._batch_ended)

    def _batch_ended(self, batch: _Batch, outcome: Outcome) -> None:
        self.running -= 1
        if batch.iteration == self._iteration:
            self._left -= len(batch.records)
        self._singly.difference_update(batch.records)
        try:
            self._judge(batch, outcome)
            if self._ready:
                self._go_on()
        except Exception as error:  # noqa: BLE001 - a task or a thread called this and would swallow it
            self._broke(error)

    def _judge(self, batch: _Batch, outcome: Outcome) -> None:
        if outcome is SUCCEEDED:
            self._all_handled(batch.records)
        elif batch.failed is not None:
            self._some_failed(batch.records, batch.failed)
        elif len(batch.records) == 1 or isinstance(outcome, Interrupted):
            for record in batch.records:
                self._decide(record, outcome)
        else:
            self._run_singly(batch.records)

    def _all_handled(self, records: Iterable[Record]) -> None:
        for record in records:
            self._tell(CompletionEvent(record, _SUCCESS, record.attempts))

    def _some_failed(self, records: list[Record], failed: dict[Record, BaseException]) -> None:
        self._all_handled(record for record in records if record not in failed)
        for record in records:
            if record in failed:
                self._decide(record, Failed(failure_of(failed[record], self._handler)))

    def _run_singly(self, records: list[Record]) -> None:
        """Run *records* one by one to find the one that fails; the try they had together does not count."""
        open_ = [record for record in records if not record.ended]
        for record in open_:
            record.attempts -= 1
            if record.assignment.leaving:  # its partition is being revoked
                self._give_back(record)
        again = [record for record in open_ if not record.assignment.leaving]
        self._singly.update(again)
        self._ready.extendleft(reversed(again))


def _parts(worker: Worker, config: ExecutionConfig) -> tuple[Engine[Any], Handler[Any], int]:
    if config.mode == "process":
        refuse_unreachable(worker)
        slots = min(config.max_in_flight, 2 * config.process_count)
        return ProcessEngine(config.process_count), child_handler(worker, config, wrapped_batch), slots
    handler = plain_handler(worker, config, _calling)
    runner, slots = in_process_runner(handler, config)
    return runner, handler, slots


def _calling(function: Callable[[Any], Any]) -> Any:
    return _awaiting(function) if is_async(function) else _calling_now(function)


def _awaiting(worker: Callable[[list[Record]], Any]) -> Any:
    async def call(batch: _Batch) -> None:
        try:
            await worker(list(batch.records))
        except BatchFailed as error:
            batch.report(error)
            raise

    return call


def _calling_now(worker: Callable[[list[Record]], Any]) -> Any:
    def call(batch: _Batch) -> None:
        try:
            worker(list(batch.records))
        except BatchFailed as error:
            batch.report(error)
            raise

    return call
