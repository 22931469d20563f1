"""
The order of records.

Owns the chains of records that run one after another: in `key_hash` order those of one key of one partition, in
`partition` order all of a partition; `unordered` has none. A record that waits for its retry holds back its chain
and no other. Knows no engine, no client, no clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.sources.kafka.config_checks import Ordering
    from redrive.sources.kafka.records.record import Assignment, Record

_WHOLE_PARTITION = object()


class Chains:
    """
    Records that wait for the record before them.

    Keys are compared by their bytes, per partition, so equal keys of two topics do not wait for each other.
    Records without a key have no order among each other.
    """

    def __init__(self, ordering: Ordering) -> None:
        self._by_key = ordering == "key_hash"
        self._ordered = ordering != "unordered"
        self._chains: dict[Assignment, dict[object, deque[Record]]] = {}
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
                continue
            chains = self._chains.get(assignment)
            if chains is None:
                chains = self._chains[assignment] = {}
            if (chain := chains.get(key)) is None:
                chains[key] = deque()
                ready.append(record)
            else:
                chain.append(record)
                self.waiting += 1
        return ready

    def leave(self, record: Record) -> Record | None:
        """Return the record that may run now that *record* has ended."""
        if not self._ordered:
            return None
        chains = self._chains.get(record.assignment)
        if chains is None:
            return None
        key = record.key if self._by_key else _WHOLE_PARTITION
        chain = chains.get(key)  # records without a key have none
        if chain is None:
            return None
        if not chain:
            del chains[key]
            return None
        self.waiting -= 1
        return chain.popleft()

    def drop(self, record: Record) -> list[Record]:
        """End the chain of *record*, which has ended; return the records that waited behind it, in order."""
        behind = list(self._chains.get(record.assignment, {}).pop(record.key, ()))
        self.waiting -= len(behind)
        return behind

    def close(self, assignment: Assignment) -> int:
        """Forget the records of *assignment* that wait; return how many there were."""
        forgotten = sum(len(chain) for chain in self._chains.pop(assignment, {}).values())
        self.waiting -= forgotten
        return forgotten
