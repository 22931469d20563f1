"""
The Kafka consumer: more parallelism than partitions, order per key, bounded retries, a dead-letter topic.

Needs the extra `redrive[kafka]`; its client is imported with the first name that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig
from redrive.sources.kafka.events import CompletionEvent, CompletionStatus
from redrive.sources.kafka.factories import WorkerFactory
from redrive.sources.kafka.health import Counts, Health, Standing
from redrive.sources.kafka.record import Assignment, Record

if TYPE_CHECKING:
    from redrive.sources.kafka.batches import BatchExecutionEngine, BatchFailed
    from redrive.sources.kafka.collector import Collector
    from redrive.sources.kafka.consumer import ParallelConsumer
    from redrive.sources.kafka.engines import AsyncExecutionEngine, ProcessExecutionEngine
    from redrive.sources.kafka.outputs import Output
    from redrive.sources.kafka.poller import BrokerPoller
    from redrive.sources.kafka.sender import KafkaSender
    from redrive.sources.kafka.work import Work, WorkManager

__all__ = [
    "Assignment",
    "AsyncExecutionEngine",
    "BatchExecutionEngine",
    "BatchFailed",
    "BrokerPoller",
    "Collector",
    "CompletionEvent",
    "CompletionStatus",
    "Counts",
    "ExecutionConfig",
    "Health",
    "KafkaConfig",
    "KafkaSender",
    "Output",
    "ParallelConsumer",
    "ProcessExecutionEngine",
    "Record",
    "Standing",
    "Work",
    "WorkManager",
    "WorkerFactory",
]

_LATER = {
    "AsyncExecutionEngine": "engines",
    "BatchExecutionEngine": "batches",
    "BatchFailed": "batches",
    "BrokerPoller": "poller",
    "Collector": "collector",
    "KafkaSender": "sender",
    "Output": "outputs",
    "ParallelConsumer": "consumer",
    "ProcessExecutionEngine": "engines",
    "Work": "work",
    "WorkManager": "work",
}


def __getattr__(name: str) -> Any:
    """Import what is heavy, or needs the client, when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
