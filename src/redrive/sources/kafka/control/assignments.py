"""
The beginning and the end of each assignment.

Owns the epochs, and what must forget an assignment that ends: crash-loop guard, results, partitions, and the work that
has not begun. Used by the control thread only. Knows no consumer: the poller says when the group gives or takes a
partition.
"""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING

from redrive.sources.kafka.control.partition import Partition
from redrive.sources.kafka.records.record import Assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import TopicPartition

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.control.crash_loops import CrashLoopGuard
    from redrive.sources.kafka.control.partition import Partitions
    from redrive.sources.kafka.control.results import Results
    from redrive.sources.kafka.execution.work_manager import Work

_log = logging.getLogger("redrive.kafka")


class Assignments:
    """Begins and ends assignments in *partitions*."""

    def __init__(
        self,
        partitions: Partitions,
        results: Results,
        crash_loops: CrashLoopGuard,
        work: Work,
        clock: Clock,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._partitions, self._results, self._crash_loops = partitions, results, crash_loops
        self._work, self._clock, self._is_stopping = work, clock, is_stopping
        self._epochs = count(1)

    def of(self, places: Iterable[TopicPartition]) -> list[Partition]:
        """Return the partitions at *places* that are assigned now."""
        found = (self._partitions.at(place.topic, place.partition) for place in places)
        return [partition for partition in found if partition is not None]

    def begin(self, topic: str, number: int, offset: int, restored: list[tuple[int, int]]) -> Partition:
        """Begin an assignment at *offset*; *restored* are the ranges beyond it that are done."""
        assignment = Assignment(topic, number, next(self._epochs))
        partition = Partition(assignment, offset, restored, self._clock.monotonic())
        self._partitions.add(partition)
        return partition

    def end(self, partition: Partition) -> None:
        """End the assignment: from now on, results of its records are ignored."""
        owner = partition.assignment
        owner.closed = True
        self._crash_loops.drop({owner})
        self._results.forget(owner)
        self._partitions.remove(partition)

    def lose(self, partition: Partition) -> None:
        """End the assignment, and give up its work that has not begun."""
        self.end(partition)
        self._work.revoke(partition.assignment)

    def rewind(self, partition: Partition) -> Partition:
        """Start over: the log restarts below what was received (it was deleted, or offsets were reset)."""
        _log.warning("%s starts again from an earlier offset", partition.name)
        old = partition.assignment
        self.lose(partition)
        fresh = self.begin(old.topic, old.partition, -1, [])
        self._results.assigned([fresh.assignment], self._is_stopping)
        return fresh
