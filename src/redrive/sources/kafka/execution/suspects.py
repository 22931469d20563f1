"""
Records that are suspected of killing the consumer.

Owns where they run: one at a time in a child process, which is all that can die of them. One whose
child dies again and again is a dead letter; one that is handled there is handled. What only fails
there is no evidence (the child may lack what the consumer set up when it started), so it runs in
the consumer as any other record does. Knows no order, no offsets, no Kafka client.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from redrive.core.decide import Failed, Lost
from redrive.engine.handler import build_handler
from redrive.engine.runners.processes.pool import ProcessEngine
from redrive.errors import HandlerError
from redrive.sources.kafka.execution.engine import ExecutionEngine, plain_handler
from redrive.sources.kafka.execution.process_calls import batch_letter_of, letter_of, wrapped, wrapped_batch
from redrive.sources.kafka.execution.worker_factory import called, made, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redrive.core.decide import Outcome
    from redrive.core.letter import Letter
    from redrive.engine.clock import Clock
    from redrive.engine.handler import Handler
    from redrive.sources.kafka.config import ExecutionConfig
    from redrive.sources.kafka.execution.worker_factory import WorkerFactory
    from redrive.sources.kafka.records.record import Record

_log = logging.getLogger("redrive.kafka")


class SuspectEngine(ExecutionEngine):
    """
    Runs records in one child process; those that do not end there go to *home*, the consumer's own engine.

    So do all of them if *worker* cannot be found by a child process; the log says that.
    """

    def __init__(
        self, worker: Callable[[Any], Any] | WorkerFactory, config: ExecutionConfig, home: ExecutionEngine,
        *, clock: Clock,
    ) -> None:  # fmt: skip
        self._worker, self._home = worker, home
        self._why_not = unreachable(worker)
        handler = plain_handler(made(worker), config) if self._why_not else _child_handler(worker, config)
        carry = letter_of if config.batch_size is None else _batch_of_one
        super().__init__(ProcessEngine(1), handler, carry, 1, clock=clock)

    def submit(self, records: Iterable[Record]) -> None:
        """Run *records* in the child process, or at home if none can have them."""
        if not self._why_not:
            super().submit(records)
            return
        form = "%s is %s, so no child process can run it: suspects run in the consumer, which may die of them"
        _log.warning(form, called(self._worker), self._why_not)
        self._home.submit(records)

    def _decide(self, record: Record, outcome: Outcome) -> None:
        if isinstance(outcome, Lost) or record.ended:
            super()._decide(record, outcome)
            return
        record.attempts -= 1  # a try that says nothing does not count
        if self._closed or record.assignment.leaving:
            self._release(record)
        else:
            self._send_home(record, outcome)

    def _send_home(self, record: Record, outcome: Outcome) -> None:
        why = "no child process can start"
        if isinstance(outcome, Failed):
            why = outcome.failure.message
            if outcome.failure.error_type.rpartition(".")[2] == HandlerError.__name__:
                self._why_not = "not importable in a child process"
        _log.warning("%s did not end in its child process and runs in the consumer: %s", repr(record), why)
        self._home.submit([record])


def _child_handler(worker: Callable[[Any], Any] | WorkerFactory, config: ExecutionConfig) -> Handler:
    wrap: Callable[[Any], Any] = wrapped if config.batch_size is None else wrapped_batch
    return build_handler(
        "kafka", wrap(worker), engine="process", policy=config.policy, timeout=config.timeout, rules=config.rules
    )


def _batch_of_one(record: Record) -> Letter:
    return batch_letter_of([record])
