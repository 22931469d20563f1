"""
Which record may run next to which.

Owns the order: in `key_hash` order records of one key of one partition run one after the
other, in `partition` order all of a partition do, `unordered` is as it says. A record that
waits for its next try keeps its lane, and only its lane. Knows no engine, no client, no clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.sources.kafka.config import Ordering
    from redrive.sources.kafka.records.record import Assignment, Record

Lane = deque["Record"]
_WHOLE_PARTITION = object()


class Lanes:
    """
    Lines of records that wait for those before them.

    Keys are compared by their bytes, per partition, so equal keys of two topics do not wait
    for each other. Records without a key have no order among each other.
    """

    def __init__(self, ordering: Ordering) -> None:
        self._by_key = ordering == "key_hash"
        self._ordered = ordering != "unordered"
        self.waiting = 0  # records that wait for one before them

    def enter(self, records: Iterable[Record]) -> list[Record]:
        """Take *records* in; return those that may run now."""
        if not self._ordered:
            return [record for record in records if not record.assignment.leaving]
        ready = []
        for record in records:
            assignment = record.assignment
            key = record.key if self._by_key else _WHOLE_PARTITION
            if assignment.leaving:
                continue
            if key is None:
                ready.append(record)
            elif (lane := assignment.lanes.get(key)) is None:
                assignment.lanes[key] = deque()
                ready.append(record)
            else:
                lane.append(record)
                self.waiting += 1
        return ready

    def leave(self, record: Record) -> Record | None:
        """Return the record that may run now that *record* has ended."""
        if not self._ordered:
            return None
        key = record.key if self._by_key else _WHOLE_PARTITION
        lanes = record.assignment.lanes
        lane = lanes.get(key)  # records without a key have none
        if lane is None:
            return None
        if not lane:
            del lanes[key]
            return None
        self.waiting -= 1
        return lane.popleft()

    def drop(self, record: Record) -> list[Record]:
        """Close the lane of *record*, which has ended; return the records that waited behind it, in order."""
        behind = list(record.assignment.lanes.pop(record.key, ()))
        self.waiting -= len(behind)
        return behind

    def close(self, assignment: Assignment) -> int:
        """Forget the records of *assignment* that wait; return how many there were."""
        forgotten = sum(len(lane) for lane in assignment.lanes.values())
        assignment.lanes.clear()
        self.waiting -= forgotten
        return forgotten
