"""
What a worker sends on.

Owns the outputs of a try: what the worker returned, kept apart until that very try is known to
have succeeded, so that a try which was given up and ends late adds nothing. Runs in tasks and
threads; what it produces is sent by others. Knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from redrive.core.decide import SUCCEEDED
from redrive.engine.clock import SystemClock
from redrive.engine.runners.tasks import TaskEngine
from redrive.engine.runners.threads import ThreadEngine
from redrive.sources.kafka.config import topic_problem
from redrive.sources.kafka.execution.engine import ExecutionEngine, is_async, plain_handler
from redrive.sources.kafka.execution.worker_factory import made

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.decide import Outcome
    from redrive.engine.clock import Clock
    from redrive.engine.runners.contract import Engine
    from redrive.sources.kafka.config import ExecutionConfig
    from redrive.sources.kafka.execution.engine import Worker
    from redrive.sources.kafka.records.record import Record

ANY_PARTITION = -1


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a worker returns to have it sent in the transaction that commits its record."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = ANY_PARTITION


class _Try:
    __slots__ = ("outputs", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.outputs: tuple[Output, ...] = ()


class ProducingEngine(ExecutionEngine):
    """Runs a worker that returns an Output, several, or none; a record's outputs are those of its successful try."""

    def __init__(self, worker: Worker, config: ExecutionConfig, *, clock: Clock | None = None) -> None:
        worker = made(worker)
        in_tasks = is_async(worker)
        engine: Engine[_Try] = TaskEngine() if in_tasks else ThreadEngine(config.worker_pool_size)
        slots = config.max_in_flight if in_tasks else min(config.max_in_flight, 2 * config.worker_pool_size)
        call = _awaiting(worker) if in_tasks else _calling(worker)
        handler = plain_handler(worker, config, call)
        super().__init__(engine, handler, None, slots, clock=clock or SystemClock())

    def _begin(self, record: Record) -> None:
        if self._closed:
            self._release(record)
            return
        self.running += 1
        record.attempts += 1
        record.began = record.began or self._clock.monotonic()
        this = _Try(record)
        self.runner.start(self._handler, this, this, self._try_ended)

    def _try_ended(self, this: _Try, outcome: Outcome) -> None:
        if outcome is SUCCEEDED:
            this.record.outputs = this.outputs
        self._ended(this.record, outcome)


def _awaiting(worker: Callable[[Record], Any]) -> Any:
    async def call(this: _Try) -> None:
        this.outputs = _checked(await worker(this.record))

    return call


def _calling(worker: Callable[[Record], Any]) -> Any:
    def call(this: _Try) -> None:
        this.outputs = _checked(worker(this.record))

    return call


def _checked(returned: Any) -> tuple[Output, ...]:
    """Return what a worker returned as outputs; anything else is the worker's failure, never dropped."""
    if returned is None:
        return ()
    outputs = (returned,) if isinstance(returned, Output) else tuple(returned)
    for each in outputs:
        if not isinstance(each, Output):
            raise TypeError(f"the worker returned a {type(each).__name__}; it may return None, an Output, or several")
        msgspec.convert(msgspec.structs.asdict(each), Output)  # what the client cannot send would stop the consumer
        if problem := topic_problem(each.topic):
            raise ValueError(f"the worker returned an Output that cannot be sent: {problem}")
    return outputs
