"""
Crash loops.

Owns finding the record that kills the whole consumer. Before the first records of a partition run, the consumer
commits a note of this start. After `crash_loop_limit` starts without progress or a clean end, the records of the
affected partitions run isolated, one at a time between all of them, and the note is marked so before each. A record
that was isolated in three crashes is not run again: it becomes a dead letter (`crash_loop`). Used by the control
thread only; knows no engine.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from redrive.core.letter import Category, Failure
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus
from redrive.sources.kafka.records.disposition import Disposition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from redrive.sources.kafka.control.partition import Partition
    from redrive.sources.kafka.offsets.start_note import StartNote
    from redrive.sources.kafka.records.record import Assignment, Record

_log = logging.getLogger("redrive.kafka")
_CONVICTING = 3  # crashes while only this record ran


class _IsolatedRecords:
    """The records of one partition that run isolated."""

    def __init__(self, partition: Partition, left: int) -> None:
        self.partition = partition
        self.left = left  # records that still run isolated
        self.waiting: deque[Record] = deque()
        self.running: Record | None = None

    @property
    def busy(self) -> bool:
        """Whether its record still runs."""
        return self.running is not None and not self.running.done


class CrashLoopGuard:
    """
    Admits records; those of a partition in a crash loop one at a time.

    *limit* starts without progress begin the isolation, for *window* records; 0 turns it off. *commit* makes a
    partition's note durable, *bury* takes the dead letter of a convicted record, *run* the record to run isolated.
    """

    def __init__(
        self,
        limit: int,
        window: int,
        commit: Callable[[Collection[Partition]], None],
        bury: Callable[[CompletionEvent], None],
        run: Callable[[list[Record]], None],
    ) -> None:
        self._limit, self._window, self._commit, self._bury, self._run = limit, window, commit, bury, run
        self._unnoted: dict[Assignment, Partition] = {}
        self._suspects: dict[Assignment, _IsolatedRecords] = {}

    def assigned(self, partition: Partition, note: StartNote) -> None:
        """Take in the note that an earlier owner of *partition* left."""
        if not self._limit:
            return
        partition.starts = note.starts + 1
        self._unnoted[partition.assignment] = partition
        if note.starts >= self._limit:
            self._suspects[partition.assignment] = _IsolatedRecords(partition, self._window)
            partition.isolated = note.isolated
            partition.starts -= note.isolated  # counted when its own record runs, not when a neighbour's does
            form = "%s was started %d times without progress; its records run one at a time"
            _log.error(form, partition.name, note.starts)
        partition.convicts = note.isolated and note.starts >= self._limit + _CONVICTING

    def admit(self, records: list[Record]) -> list[Record]:
        """Commit the start of their partitions; return the records that may run in parallel."""
        if self._unnoted and records:
            self._note({record.assignment for record in records} & self._unnoted.keys())
        if not self._suspects:
            return records
        free = []
        for record in records:
            suspects = self._suspects.get(record.assignment)
            if suspects is None:
                free.append(record)
            else:
                suspects.waiting.append(record)
        return [*free, *self.step()]

    def step(self) -> list[Record]:
        """Run the next suspect if none runs; return the records of partitions whose isolation has ended."""
        if not self._suspects:
            return []
        free: list[Record] = []
        for suspects in list(self._suspects.values()):
            if suspects.left <= 0 and not suspects.busy:
                free += self._end(suspects)
        if free or any(suspects.busy for suspects in self._suspects.values()):
            return free
        first = next((each for each in self._suspects.values() if each.waiting), None)
        if first is not None:
            owner = first.partition.assignment
            self._suspects[owner] = self._suspects.pop(owner)  # the other partitions come first next time
            self._next(first)
        return free

    def drop(self, leaving: Collection[Assignment]) -> None:
        """Forget the waiting records of revoked partitions."""
        for assignment in leaving:
            self._unnoted.pop(assignment, None)
            if (suspects := self._suspects.pop(assignment, None)) is not None:
                suspects.partition.dropped += len(suspects.waiting)

    def _note(self, fresh: set[Assignment]) -> None:
        partitions = [self._unnoted.pop(assignment) for assignment in fresh]
        for partition in partitions:
            partition.noted, partition.dirty = True, True
            partition.started_at = partition.tracker.watermark
        if partitions:
            self._commit(partitions)

    def _next(self, suspects: _IsolatedRecords) -> None:
        partition, is_first, record = suspects.partition, suspects.running is None, suspects.waiting.popleft()
        suspects.running = record
        suspects.left -= 1
        if partition.convicts:
            partition.convicts = False
            self._bury(_convicted(record, partition.starts))
            return
        if is_first:
            partition.starts = (partition.starts if partition.isolated else self._limit) + 1
            partition.isolated = True
        if is_first or partition.tracker.watermark != partition.started_at:
            partition.dirty = True
            self._commit([partition])
        self._run([record])

    def _end(self, suspects: _IsolatedRecords) -> list[Record]:
        """End the isolation of a partition: the killer was not among so many records."""
        partition = suspects.partition
        del self._suspects[partition.assignment]
        partition.isolated = False
        partition.dirty = True
        _log.warning("%s is out of its crash loop; its records run in parallel again", partition.name)
        return list(suspects.waiting)


def _convicted(record: Record, times: int) -> CompletionEvent:
    failure = Failure(
        error_type="ConsumerCrashed",
        message=f"the consumer died {times} times at this record, the last {_CONVICTING} times while only it ran",
        category=Category.RESOURCE,
        rule=f"isolated in {_CONVICTING} crashes",
        terminal=True,
        fingerprint=Disposition.CRASH_LOOP,
    )
    return CompletionEvent(record, CompletionStatus.FAILURE, times, failure, Disposition.CRASH_LOOP)
