"""
The worker of a Kafka consumer, driven by hand.

Owns only the door to `redrive.sources.kafka.testing`, which is imported when a test asks for it: most tests do not
need Kafka's parts.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from redrive.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig
    from redrive.sources.kafka.config_checks import Ordering
    from redrive.sources.kafka.execution.handlers import Worker
    from redrive.sources.kafka.testing import WorkerDrive


@asynccontextmanager
async def drive_worker(
    worker: Worker,
    *,
    execution: ExecutionConfig | None = None,
    kafka: KafkaConfig | None = None,
    ordering: Ordering = "key_hash",
    clock: FakeClock | None = None,
) -> AsyncIterator[WorkerDrive]:
    """Yield a `WorkerDrive` that runs a Kafka consumer's worker on the test's own records, without a broker."""
    from redrive.sources.kafka.testing import WorkerDrive  # noqa: PLC0415 - most tests are of other things

    test = WorkerDrive(worker, clock or FakeClock(), execution=execution, kafka=kafka, ordering=ordering)
    try:
        yield test
    finally:
        await test.close()
