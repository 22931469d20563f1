"""
The parts that make results durable, put together.

Owns which parts a configuration asks for: transactions, or commits with a dead-letter publisher and parked keys.
Knows no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.sources.kafka.control.commits import Commits
from redrive.sources.kafka.control.results import CommittedResults
from redrive.sources.kafka.control.transactions import Transactions
from redrive.sources.kafka.dead_letters.parked_keys import ParkedKeys, Parking
from redrive.sources.kafka.dead_letters.publisher import DeadLetterPublisher

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.policy import RetryPolicy
    from redrive.engine.clock import Clock
    from redrive.signals.otel import OpenTelemetry
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.control.partition import Partitions
    from redrive.sources.kafka.control.results import Results
    from redrive.sources.kafka.dead_letters.publisher import HaltsPartitions
    from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics
    from redrive.sources.kafka.records.record import Record


def results_for(
    kafka: KafkaConfig,
    group: str,
    policy: RetryPolicy,
    topics: DeadLetterTopics | None,
    clock: Clock,
    *,
    partitions: Partitions,
    halts: HaltsPartitions,
    again: Callable[[list[Record]], None],
    parked: ParkedKeys | None,
    tracing: OpenTelemetry | None = None,
) -> Results:
    """Return what *kafka* asks for; *topics* is None without a dead-letter topic, *again* runs a record once more."""
    if kafka.exactly_once:
        return Transactions(kafka, group, policy, topics, clock, partitions=partitions, halts=halts, tracing=tracing)
    commits = Commits(kafka.commit_interval_ms / 1000)
    if topics is None:
        return CommittedResults(partitions, commits, None, None)
    publisher = DeadLetterPublisher(
        kafka, group, policy, topics, clock, delivered=partitions.complete, halts=halts, tracing=tracing
    )
    if not kafka.dlq_park_keys:
        return CommittedResults(partitions, commits, publisher, None)
    parking = Parking(kafka, topics, clock, parked or ParkedKeys(), publisher.publish, again)
    return CommittedResults(partitions, commits, publisher, parking)
