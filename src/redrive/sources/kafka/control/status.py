"""
The status of a consumer.

Owns its health, counts and the status of its partitions. The control thread brings them up to date every second;
any thread may read them. Knows no rule of the parts that it asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from redrive.sources.kafka.health import Counts, Health, PartitionStatus, judge

if TYPE_CHECKING:
    from redrive.sources.kafka.client.outage import Outage
    from redrive.sources.kafka.control.flood_gate import FloodGate, HeldRecords
    from redrive.sources.kafka.control.partition import Partition, Partitions
    from redrive.sources.kafka.control.results import Results
    from redrive.sources.kafka.control.stalls import Stalls
    from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics


class ConsumerStatus:
    """What is known of a consumer at its last look."""

    def __init__(
        self,
        partitions: Partitions,
        results: Results,
        topics: DeadLetterTopics | None,
        stalls: Stalls,
        *,
        gate: FloodGate,
        held: HeldRecords,
        outage: Outage,
    ) -> None:
        self.counts = Counts()
        self.health = Health()
        self.partitions: tuple[PartitionStatus, ...] = ()
        self.absent: set[str] = set()  # topics to consume that do not exist
        self.looked_at = 0.0
        self._partitions, self._results, self._topics = partitions, results, topics
        self._stalls, self._gate, self._held, self._outage = stalls, gate, held, outage

    def look(self, consumer: Consumer, now: float, *, retries: int) -> None:
        """Bring everything up to date."""
        self.looked_at = now
        self.health = judge(self._halted(), self._degraded(now))
        self._count(now, retries)
        self.partitions = tuple(each.status(now, _end_of(consumer, each)) for each in self._partitions.all)

    def _halted(self) -> list[str]:
        halted = [f"{each.name}: {each.halted}" for each in self._partitions.all if each.halted]
        if self._outage.reason:
            halted.append(self._outage.reason)
        if self._gate.is_shut:
            halted.append(f"too many records fail in a row; {len(self._held)} are held and will be tried again")
        return halted

    def _degraded(self, now: float) -> list[str]:
        reasons = self._stalls.reasons(self._partitions.all, now)
        if self._results.last_error:
            reasons.append(f"the last commit failed: {self._results.last_error}")
        if self._topics is not None:
            reasons += self._topics.reasons()
        if self.absent:
            missing = ", ".join(sorted(self.absent))
            reasons.append(f"no such topic to consume: {missing}; check its name, or create it")
        return reasons

    def _count(self, now: float, retries: int) -> None:
        counts, letters = self.counts, self._results.dead_letters(now)
        counts.retries = retries
        counts.in_flight = sum(each.tracker.open for each in self._partitions.all)
        counts.paused = sum(each.paused for each in self._partitions.all)
        counts.commit_failures = self._results.commit_failures
        counts.dlq_published, counts.dlq_pending = letters.published, letters.pending
        counts.dlq_pending_age, counts.dlq_failures = letters.pending_age, letters.failures


def _end_of(consumer: Consumer, partition: Partition) -> int:
    """Return the end of its log, as far as the client knows; negative if it does not."""
    place = TopicPartition(partition.assignment.topic, partition.assignment.partition)
    return int(consumer.get_watermark_offsets(place, cached=True)[1])
