"""
The Kafka consumer: more parallelism than partitions, order per key, bounded retries, a dead-letter topic.

Needs the extra `redrive[kafka]`. The first name that needs the client imports it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig
from redrive.sources.kafka.execution.worker_factory import WorkerFactory
from redrive.sources.kafka.health import Counts, Health, PartitionStatus, Standing
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus
from redrive.sources.kafka.records.dead_letter import DeadLetterCodec, DeadLetterNames, FailedRecord, MessageParts
from redrive.sources.kafka.records.disposition import Disposition
from redrive.sources.kafka.records.output import Output
from redrive.sources.kafka.records.record import Assignment, Record

if TYPE_CHECKING:
    from redrive.sources.kafka.collect.collector import Collector
    from redrive.sources.kafka.collect.sender import KafkaSender
    from redrive.sources.kafka.consumer import ParallelConsumer
    from redrive.sources.kafka.control.poller import BrokerPoller
    from redrive.sources.kafka.execution.batches import BatchExecutionEngine, BatchFailed
    from redrive.sources.kafka.execution.engine import AsyncExecutionEngine, ProcessExecutionEngine
    from redrive.sources.kafka.execution.handlers import record_handler
    from redrive.sources.kafka.execution.work_manager import Work, WorkManager

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
    "DeadLetterCodec",
    "DeadLetterNames",
    "Disposition",
    "ExecutionConfig",
    "FailedRecord",
    "Health",
    "KafkaConfig",
    "KafkaSender",
    "MessageParts",
    "Output",
    "ParallelConsumer",
    "PartitionStatus",
    "ProcessExecutionEngine",
    "Record",
    "Standing",
    "Work",
    "WorkManager",
    "WorkerFactory",
    "record_handler",
]

_LATER = {
    "AsyncExecutionEngine": "execution.engine",
    "BatchExecutionEngine": "execution.batches",
    "BatchFailed": "execution.batches",
    "BrokerPoller": "control.poller",
    "Collector": "collect.collector",
    "KafkaSender": "collect.sender",
    "ParallelConsumer": "consumer",
    "ProcessExecutionEngine": "execution.engine",
    "Work": "execution.work_manager",
    "WorkManager": "execution.work_manager",
    "record_handler": "execution.handlers",
}


def __getattr__(name: str) -> Any:
    """Import what is heavy, or needs the client, at its first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
