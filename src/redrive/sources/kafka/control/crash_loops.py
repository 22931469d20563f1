"""
A record that kills the whole consumer, found and put aside.

Owns the bound on crash loops. Every start at a partition is noted beside its offset before its
first records run. Where several starts came to no clean end and no progress, its records run one
at a time, also among the partitions to which that happened, each noted as alone before it begins.
Where they run is for others to know; if the consumer dies of one all the same, the one that was
alone several times then is not run again: it is a dead letter of the disposition `crash_loop`.
Used by the control thread only.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from redrive.core.letter import Category, Failure
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from redrive.sources.kafka.control.partition import Partition
    from redrive.sources.kafka.offsets.start_note import Boots
    from redrive.sources.kafka.records.record import Assignment, Record

_log = logging.getLogger("redrive.kafka")
CRASH_LOOP = "crash_loop"
_ALONE_TIMES = 3  # a record is convicted by so many crashes while nothing ran beside it


class _Suspects:
    """The records of one partition that run one at a time."""

    def __init__(self, left: int) -> None:
        self.left = left  # how many are still to run alone
        self.waiting: deque[Record] = deque()
        self.running: Record | None = None

    @property
    def busy(self) -> bool:
        """Whether the one that runs has not ended."""
        return self.running is not None and not self.running.done


class Quarantine:
    """
    Admits records, those of a partition in quarantine one at a time.

    *limit* starts without progress begin it, for *window* records. *commit* makes a partition's
    note durable; *bury* takes the dead letter of a record that is convicted; *run* takes the record
    whose turn it is.
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
        self._unnoted: set[Partition] = set()
        self._suspects: dict[Partition, _Suspects] = {}

    def assigned(self, partition: Partition, note: Boots) -> None:
        """Take in what an earlier owner noted of *partition*."""
        partition.boots = note.starts + 1
        self._unnoted.add(partition)
        if note.starts >= self._limit:
            self._suspects[partition] = _Suspects(self._window)
            partition.alone = note.alone
            partition.boots -= note.alone  # it counts on when its turn comes, not when a neighbour's does
            form = "%s was begun %d times without progress; its records run one at a time"
            _log.error(form, partition.name, note.starts)
        partition.convicts = note.alone and note.starts >= self._limit + _ALONE_TIMES

    def admit(self, records: list[Record]) -> list[Record]:
        """Note the start of their partitions, durably; return those that are free to run."""
        if self._unnoted and records:
            self._note({record.assignment.state for record in records} & self._unnoted)
        if not self._suspects:
            return records
        free = []
        for record in records:
            suspects = self._suspects.get(record.assignment.state)
            if suspects is None:
                free.append(record)
            else:
                suspects.waiting.append(record)
        return [*free, *self.step()]

    def step(self) -> list[Record]:
        """Run the record whose turn it is alone, if it is anybody's; return those of partitions that are free again."""
        free: list[Record] = []
        for partition, suspects in list(self._suspects.items()):
            if suspects.left <= 0 and not suspects.busy:
                free += self._end(partition, suspects)
        if free or any(suspects.busy for suspects in self._suspects.values()):
            return free
        first = next((each for each, suspects in self._suspects.items() if suspects.waiting), None)
        if first is not None:
            self._suspects[first] = self._suspects.pop(first)  # the others come first next time
            self._next(first, self._suspects[first])
        return free

    def drop(self, leaving: Collection[Assignment]) -> None:
        """Forget what waits of partitions that go."""
        for partition in [each for each in self._suspects if each.assignment in leaving]:
            partition.dropped += len(self._suspects.pop(partition).waiting)
        self._unnoted = {each for each in self._unnoted if each.assignment not in leaving}

    def _note(self, fresh: set[Partition]) -> None:
        for partition in fresh:
            partition.noted, partition.dirty = True, True
            partition.boot_at = partition.tracker.watermark
        self._unnoted -= fresh
        if fresh:
            self._commit(fresh)

    def _next(self, partition: Partition, suspects: _Suspects) -> None:
        is_first, record = suspects.running is None, suspects.waiting.popleft()
        suspects.running = record
        suspects.left -= 1
        if partition.convicts:
            partition.convicts = False
            self._bury(_convicted(record, partition.boots))
            return
        if is_first:
            partition.boots = (partition.boots if partition.alone else self._limit) + 1
            partition.alone = True
        if is_first or partition.tracker.watermark != partition.boot_at:
            partition.dirty = True
            self._commit({partition})
        self._run([record])

    def _end(self, partition: Partition, suspects: _Suspects) -> list[Record]:
        """Let a partition run freely again: whatever killed the consumer was not among so many records."""
        del self._suspects[partition]
        partition.alone = False
        partition.dirty = True
        _log.warning("%s is out of quarantine", partition.name)
        return list(suspects.waiting)


def _convicted(record: Record, times: int) -> CompletionEvent:
    failure = Failure(
        error_type="ConsumerCrashed",
        message=f"the consumer died {times} times at this record, the last times with nothing running beside it",
        category=Category.RESOURCE,
        rule=f"alone in {_ALONE_TIMES} crashes",
        terminal=True,
        fingerprint=CRASH_LOOP,
    )
    return CompletionEvent(record, CompletionStatus.FAILURE, times, failure, CRASH_LOOP)
