"""
Records that may kill the consumer.

Owns where suspects run: one at a time in a child process, so that only the child can die of them. A record whose
child dies again and again becomes a dead letter; a record that succeeds there is handled. A failure there proves
nothing (the child may lack what the consumer set up at its start), so such a record runs in the consumer like any
other. Knows no order, no offsets, no Kafka client.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from redrive.core.decide import Failed, Lost
from redrive.engine.runners.processes.pool import ProcessEngine
from redrive.errors import HandlerError
from redrive.sources.kafka.execution.engine import ExecutionEngine
from redrive.sources.kafka.execution.handlers import child_handler, function_of, plain_handler
from redrive.sources.kafka.execution.process_calls import batch_letter_of, letter_of, wrapped, wrapped_batch
from redrive.sources.kafka.execution.worker_factory import called, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redrive.core.decide import Outcome
    from redrive.core.letter import Letter
    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import ExecutionConfig
    from redrive.sources.kafka.execution.handlers import Worker
    from redrive.sources.kafka.records.record import Record

_log = logging.getLogger("redrive.kafka")


class SuspectEngine(ExecutionEngine):
    """
    Runs records in one child process; those that neither succeed nor kill it go to *home*, the consumer's own engine.

    If a child process cannot import *worker*, all of them go to *home*, and the log tells it.
    """

    def __init__(self, worker: Worker, config: ExecutionConfig, home: ExecutionEngine, *, clock: Clock) -> None:
        function = function_of(worker)
        self._name, self._home, self._why_not = called(function), home, unreachable(function)
        wrap: Callable[[Any], Any] = wrapped if config.batch_size is None else wrapped_batch
        handler = plain_handler(worker, config) if self._why_not else child_handler(worker, config, wrap)
        carry = letter_of if config.batch_size is None else _batch_of_one
        super().__init__(ProcessEngine(1), handler, carry, 1, clock=clock)

    def submit(self, records: Iterable[Record]) -> None:
        """Run *records* in the child process, or in the home engine if no child can import the worker."""
        if not self._why_not:
            super().submit(records)
            return
        form = "%s is %s, so no child process can run it: suspects run in the consumer and may kill it"
        _log.warning(form, self._name, self._why_not)
        self._home.submit(records)

    def _decide(self, record: Record, outcome: Outcome) -> None:
        if isinstance(outcome, Lost) or record.ended:
            super()._decide(record, outcome)
            return
        record.attempts -= 1  # this try proves nothing, so it does not count
        if self._closed or record.assignment.leaving:
            self._give_back(record)
        else:
            self._send_home(record, outcome)

    def _send_home(self, record: Record, outcome: Outcome) -> None:
        why = "no child process can start"
        if isinstance(outcome, Failed):
            why = outcome.failure.message
            if outcome.failure.error_type.rpartition(".")[2] == HandlerError.__name__:
                self._why_not = "not importable in a child process"
        _log.warning("%s failed in its child process and now runs in the consumer: %s", repr(record), why)
        self._home.submit([record])


def _batch_of_one(record: Record) -> Letter:
    return batch_letter_of([record])
