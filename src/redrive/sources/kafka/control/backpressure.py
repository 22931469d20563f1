"""
Backpressure.

Owns the bounds on records and bytes in memory. Each partition has an equal share; the consumer pauses a partition
that stays above it and resumes it at half of it, so that a stalled partition takes no room from the others. Pausing
discards what the client has prefetched, so a short excess is tolerated. Knows no record.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from redrive.sources.kafka.control.partition import Partition

_WAIT_OUT = 0.25  # seconds above its share before a partition is paused
_LONGEST_WINDOW = 200_000  # records between a partition's watermark and its last one
_PLENTY = 2_000  # records; more than any worker handles in _REST
_REST = 0.005  # seconds


class Backpressure:
    """Pauses and resumes partitions."""

    def __init__(self, most_records: int, most_bytes: int) -> None:
        self._most_records, self._most_bytes = most_records, most_bytes
        self._too_many_bytes = False
        self._shut = False  # whether all partitions are to be paused
        self.must_wait = False  # whether a poll could fetch more of a partition above its share

    def step(self, consumer: Consumer, partitions: Collection[Partition], now: float, *, shut: bool) -> None:
        """Pause partitions above their bounds, resume those well below."""
        if not partitions:
            return
        self._shut = shut
        kept = sum([each.bytes for each in partitions])
        self._too_many_bytes = kept > (self._most_bytes // 2 if self._too_many_bytes else self._most_bytes)
        share = max(1, self._most_records // len(partitions))
        pause = [each for each in partitions if not each.paused and self._is_over(each, share, now)]
        resume = [each for each in partitions if each.paused and self._is_well_below(each, share)]
        if pause:
            consumer.pause([_place(each) for each in pause])
        if resume:
            consumer.resume([_place(each) for each in resume])
        for each in pause:
            each.paused = True
        for each in resume:
            each.paused, each.over_since = False, None
        self.must_wait = any(each.tracker.open > share and not each.paused for each in partitions)

    def _is_over(self, partition: Partition, share: int, now: float) -> bool:
        tracker = partition.tracker
        if self._shut or self._too_many_bytes or partition.halted or len(tracker) > _LONGEST_WINDOW:
            return True
        if tracker.open <= share:
            partition.over_since = None
            return False
        if partition.over_since is None:
            partition.over_since = now
        return now - partition.over_since >= _WAIT_OUT

    def _is_well_below(self, partition: Partition, share: int) -> bool:
        tracker = partition.tracker
        blocked = self._shut or self._too_many_bytes or bool(partition.halted)
        blocked = blocked or len(tracker) > _LONGEST_WINDOW // 2
        return not blocked and tracker.open <= share // 2


def rested(buffered: int) -> bool:
    """
    Sleep a moment if *buffered* records keep the workers busy for that long; return whether they do.

    Waiting for the next completion instead would wake the control thread at each of them, and every time it would
    take the interpreter's lock from the workers.
    """
    if buffered < _PLENTY:
        return False
    time.sleep(_REST)
    return True


def _place(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.assignment.topic, partition.assignment.partition)
