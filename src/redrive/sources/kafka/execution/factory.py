"""
The choice of an execution engine.

Owns which engine a configuration asks for, and whether suspects get an engine of their own. Knows no order, no
offsets, no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.sources.kafka.execution.batches import BatchExecutionEngine
from redrive.sources.kafka.execution.engine import AsyncExecutionEngine, ProcessExecutionEngine
from redrive.sources.kafka.execution.producing import ProducingEngine
from redrive.sources.kafka.execution.suspects import SuspectEngine

if TYPE_CHECKING:
    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import ExecutionConfig
    from redrive.sources.kafka.execution.engine import ExecutionEngine
    from redrive.sources.kafka.execution.handlers import Worker


def engine_for(
    worker: Worker, config: ExecutionConfig, *, clock: Clock | None = None, exactly_once: bool = False
) -> ExecutionEngine:
    """Return the engine that *config* asks for; in the *exactly_once* mode one that collects outputs."""
    if exactly_once:
        return ProducingEngine(worker, config, clock=clock)
    if config.batch_size is not None:
        return BatchExecutionEngine(worker, config, clock=clock)
    kind = ProcessExecutionEngine if config.mode == "process" else AsyncExecutionEngine
    return kind(worker, config, clock=clock)


def suspects_engine_for(
    worker: Worker, config: ExecutionConfig, home: ExecutionEngine, *, clock: Clock
) -> ExecutionEngine:
    """Return the engine for records that may kill the consumer: *home* itself, if it already runs in processes."""
    return home if config.mode == "process" else SuspectEngine(worker, config, home, clock=clock)
