"""
The metrics of a Kafka consumer.

Owns their names, labels and meanings, and how they are read from a running consumer. Labels are the group, topics and
partitions: never a key or an offset. Knows no exporter and no client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.signals.metrics import Measure, Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.sources.kafka.consumer import ParallelConsumer
    from redrive.sources.kafka.health import Counts, PartitionStatus

_GROUP = ("group",)
_PARTITION = ("group", "topic", "partition")
ATTEMPTS = "redrive_kafka_attempts"
ATTEMPT_BOUNDS = (1, 2, 3, 5, 10)
_HEALTH = ("green", "degraded", "red")

KAFKA_METRICS = (  # each consumer counts from 0 at its start; updated every second
    Metric("redrive_kafka_received_total", "counter", _GROUP, "Records received from the broker."),
    Metric("redrive_kafka_skipped_total", "counter", _GROUP, "Records that an earlier owner had done already."),
    Metric("redrive_kafka_processed_total", "counter", _GROUP, "Records handled."),
    Metric("redrive_kafka_failed_total", "counter", _GROUP, "Records given up after their last try."),
    Metric("redrive_kafka_retries_total", "counter", _GROUP, "Tries that failed and will be repeated."),
    Metric(
        ATTEMPTS, "histogram", _GROUP, "Tries that a record took until it was handled or given up.",
        tuple(map(float, ATTEMPT_BOUNDS)),
    ),
    Metric("redrive_kafka_late_total", "counter", _GROUP, "Results of partitions that were no longer ours."),
    Metric("redrive_kafka_dlq_published_total", "counter", _GROUP, "Dead letters that the broker has confirmed."),
    Metric("redrive_kafka_dlq_failures_total", "counter", _GROUP, "Publishes of dead letters that were not taken."),
    Metric("redrive_kafka_dlq_pending", "gauge", _GROUP, "Dead letters that the broker has not confirmed yet."),
    Metric(
        "redrive_kafka_dlq_pending_age_seconds", "gauge", _GROUP,
        "For how long the oldest of them has waited; 0 if there is none.",
    ),
    Metric("redrive_kafka_commit_failures_total", "counter", _GROUP, "Commits that were refused and tried again."),
    Metric("redrive_kafka_concurrency", "gauge", _GROUP, "Records that may run at once now; 0 before the start."),
    Metric("redrive_kafka_in_flight", "gauge", _PARTITION, "Records received and neither handled nor dead-lettered."),
    Metric("redrive_kafka_lag", "gauge", _PARTITION, "Records between the watermark and the end of the log."),
    Metric(
        "redrive_kafka_watermark_age_seconds", "gauge", _PARTITION,
        "For how long one record has held back commits; 0 if none does.",
    ),
    Metric("redrive_kafka_gaps", "gauge", _PARTITION, "Stretches that are done beyond the watermark."),
    Metric("redrive_kafka_paused", "gauge", _PARTITION, "1 while a partition is paused, because it has enough to do."),
    Metric("redrive_kafka_halted", "gauge", _PARTITION, "1 while a partition's dead letters are not taken."),
    Metric("redrive_kafka_health", "gauge", ("group", "status"), "1 for how the consumer is, else 0."),
)  # fmt: skip


def readings(consumer: ParallelConsumer) -> Iterator[Measure]:
    """Yield the counts and the status of *consumer*, except the histogram."""
    group = (consumer.group,)
    for name, value in _counted(consumer.counts):
        yield Measure(f"redrive_kafka_{name}", group, value)
    yield Measure("redrive_kafka_concurrency", group, consumer.concurrency)
    for each in consumer.partitions:
        labels = (*group, each.topic, str(each.partition))
        yield from (Measure(f"redrive_kafka_{name}", labels, value) for name, value in _of_partition(each))
    for status in _HEALTH:
        yield Measure("redrive_kafka_health", (*group, status), consumer.health.status == status)


def attempts(counts: Counts) -> tuple[list[tuple[str, float]], float]:
    """Return how many records ended by each bound of the histogram, and how many tries all of them took."""
    ended, again = counts.processed + counts.failed, dict(counts.again)
    beyond = [sum(n for tries, n in again.items() if tries > bound) for bound in ATTEMPT_BOUNDS]
    buckets = [(f"{float(bound)}", float(ended - n)) for bound, n in zip(ATTEMPT_BOUNDS, beyond, strict=True)]
    total = ended + sum((tries - 1) * n for tries, n in again.items())
    return [*buckets, ("+Inf", float(ended))], float(total)


def _counted(counts: Counts) -> Iterator[tuple[str, float]]:
    for name in ("received", "skipped", "processed", "failed", "retries", "late"):
        yield f"{name}_total", getattr(counts, name)
    for name in ("dlq_published", "dlq_failures", "commit_failures"):
        yield f"{name}_total", getattr(counts, name)
    yield "dlq_pending", counts.dlq_pending
    yield "dlq_pending_age_seconds", counts.dlq_pending_age


def _of_partition(status: PartitionStatus) -> Iterator[tuple[str, float]]:
    yield "in_flight", status.in_flight
    if status.lag is not None:
        yield "lag", status.lag
    yield "watermark_age_seconds", status.watermark_age
    yield "gaps", status.gaps
    yield "paused", status.paused
    yield "halted", status.halted
