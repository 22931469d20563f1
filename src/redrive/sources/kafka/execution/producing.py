"""
Workers that return outputs.

Owns the outputs of a try. They are kept apart until that try has succeeded, so that a try which was given up and
ends late adds nothing. Runs in tasks and threads; the transaction sends the outputs. Knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from redrive.core.decide import SUCCEEDED
from redrive.engine.clock import SystemClock
from redrive.sources.kafka.config_checks import topic_problem
from redrive.sources.kafka.execution.engine import ExecutionEngine, in_process_runner
from redrive.sources.kafka.execution.handlers import is_async, plain_handler
from redrive.sources.kafka.records.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.decide import Outcome
    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import ExecutionConfig
    from redrive.sources.kafka.execution.handlers import Worker
    from redrive.sources.kafka.records.record import Record


class _OneTry:
    __slots__ = ("outputs", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.outputs: tuple[Output, ...] = ()


class ProducingEngine(ExecutionEngine):
    """Runs a worker that returns an Output, several, or none; a record's outputs are those of its successful try."""

    def __init__(self, worker: Worker, config: ExecutionConfig, *, clock: Clock | None = None) -> None:
        handler = plain_handler(worker, config, _collecting)
        runner, slots = in_process_runner(handler, config)
        super().__init__(runner, handler, None, slots, clock=clock or SystemClock(), adaptive=config)

    def _records_of(self, item: _OneTry) -> list[Record]:
        return [item.record]

    def _run(self, record: Record) -> None:
        this = _OneTry(record)
        self.runner.start(self._handler, this, this, self._try_ended)

    def _try_ended(self, this: _OneTry, outcome: Outcome) -> None:
        if outcome is SUCCEEDED:
            this.record.outputs = this.outputs
        self._ended(this.record, outcome)


def _collecting(function: Callable[[Record], Any]) -> Any:
    return _awaiting(function) if is_async(function) else _calling(function)


def _awaiting(worker: Callable[[Record], Any]) -> Any:
    async def call(this: _OneTry) -> None:
        this.outputs = _checked(await worker(this.record))

    return call


def _calling(worker: Callable[[Record], Any]) -> Any:
    def call(this: _OneTry) -> None:
        this.outputs = _checked(worker(this.record))

    return call


def _checked(returned: Any) -> tuple[Output, ...]:
    """Return what a worker returned as outputs; anything else fails the try."""
    if returned is None:
        return ()
    outputs = (returned,) if isinstance(returned, Output) else tuple(returned)
    for each in outputs:
        if not isinstance(each, Output):
            raise TypeError(f"the worker returned a {type(each).__name__}; it may return None, an Output, or several")
        msgspec.convert(
            msgspec.structs.asdict(each), Output
        )  # a value that the client cannot send would stop the consumer
        if problem := topic_problem(each.topic):
            raise ValueError(f"the worker returned an Output that cannot be sent: {problem}")
    return outputs
