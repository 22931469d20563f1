"""
Assigned partitions, as the control thread sees them.

Owns the numbers between poll and commit of each assignment: its tracker, what was committed, what is held in memory.
Knows no Kafka client.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from redrive.sources.kafka.health import PartitionStatus
from redrive.sources.kafka.offsets.start_note import StartNote
from redrive.sources.kafka.offsets.tracker import OffsetTracker

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from redrive.sources.kafka.offsets.tracker import Ranges
    from redrive.sources.kafka.records.record import Assignment, Record


class Partition:
    """One assignment of a partition."""

    __slots__ = (
        "assignment", "bytes", "committed", "convicts", "dirty", "dropped", "gaps", "halted", "isolated", "noted",
        "over_since", "paused", "started_at", "starts", "still_since", "tracker", "watermark",
    )  # fmt: skip

    def __init__(self, assignment: Assignment, committed: int, restored: Ranges, now: float) -> None:
        self.assignment = assignment
        self.tracker = OffsetTracker(restored)
        self.committed: tuple[int, str] = (committed, "")  # offset and metadata that the broker last confirmed
        self.bytes = 0  # of records that are not done
        self.dropped = 0  # records that will have no completion, because the partition is revoked
        self.dirty = False  # whether there may be something to commit
        self.gaps = 0  # ranges that were done beyond the watermark at the last commit
        self.paused = False
        self.over_since: float | None = None  # when it went above its share of the buffer
        self.halted: str = ""  # why nothing is committed past some dead letter
        self.watermark: int | None = None  # at the last look
        self.still_since = now  # when the watermark last moved, or had no need to
        self.starts = 0  # starts without a clean end, this one included
        self.started_at: int | None = None  # the watermark at this start
        self.noted = False  # whether this start is part of what is committed
        self.isolated = False  # whether its records run one at a time
        self.convicts = False  # whether its first record has killed the consumer too often

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.assignment.topic}[{self.assignment.partition}]"

    @property
    def unresolved(self) -> int:
        """Records that still await their completion."""
        return self.tracker.open - self.dropped

    def receive(self, records: list[Record]) -> list[Record]:
        """Note that *records*, at least one, were received; return those to run."""
        fresh = self.tracker.add_all(records)
        self.bytes += sum([record.size for record in fresh])
        self.dirty = self.dirty or len(fresh) < len(records)
        return fresh

    def complete(self, record: Record) -> None:
        """Note that *record* is done."""
        self.complete_all([record])

    def complete_all(self, records: list[Record]) -> None:
        """Note that *records* are done."""
        self.bytes -= sum([record.size for record in records])
        self.tracker.complete_all(records)
        self.dirty = True

    def note(self, watermark: int) -> str:
        """Return the note to commit at *watermark*: progress resets the count of starts, a clean end leaves none."""
        if not self.noted:
            return ""
        return StartNote(self.starts if watermark == self.started_at else 1, self.isolated).text

    def looked_at(self, now: float) -> float:
        """Return for how many seconds the watermark has not moved although there is work behind it."""
        watermark = self.tracker.watermark
        if watermark != self.watermark or not self.tracker.open:
            self.watermark, self.still_since = watermark, now
        return now - self.still_since

    def status(self, now: float, end: int) -> PartitionStatus:
        """Return its status; its log ends at *end*, negative if unknown."""
        owner = self.assignment
        at = self.committed[0] if self.tracker.watermark is None else self.tracker.watermark
        return PartitionStatus(
            topic=owner.topic,
            partition=owner.partition,
            in_flight=self.tracker.open,
            lag=max(0, end - at) if min(end, at) >= 0 else None,
            watermark_age=self.looked_at(now),
            gaps=self.gaps,
            paused=self.paused,
            halted=bool(self.halted),
        )


class Partitions:
    """The partitions assigned now, by place and by assignment."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[str, int], Partition] = {}
        self._by_assignment: dict[Assignment, Partition] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._by_place)

    @property
    def all(self) -> Collection[Partition]:
        """All of them; a live view."""
        return self._by_place.values()

    @property
    def topics(self) -> set[str]:
        """Their topics."""
        return {topic for topic, _ in self._by_place}

    def at(self, topic: str, number: int) -> Partition | None:
        """Return the partition at this place, or None."""
        return self._by_place.get((topic, number))

    def of(self, assignment: Assignment) -> Partition | None:
        """Return the partition of *assignment*, or None once it has ended."""
        return self._by_assignment.get(assignment)

    def add(self, partition: Partition) -> None:
        """Take *partition* in."""
        owner = partition.assignment
        self._by_place[owner.topic, owner.partition] = partition
        self._by_assignment[owner] = partition

    def remove(self, partition: Partition) -> None:
        """Take *partition* out; a newer assignment of the same place stays."""
        owner = partition.assignment
        self._by_assignment.pop(owner, None)
        if self._by_place.get((owner.topic, owner.partition)) is partition:
            del self._by_place[owner.topic, owner.partition]

    def complete(self, record: Record) -> None:
        """Note that *record*, of an assignment that has not ended, is handled or safely dead-lettered."""
        self._by_assignment[record.assignment].complete(record)

    def complete_all(self, records: list[Record]) -> None:
        """Note that *records*, of assignments that have not ended, are handled or safely dead-lettered."""
        done: defaultdict[Assignment, list[Record]] = defaultdict(list)
        for record in records:
            done[record.assignment].append(record)
        for assignment, some in done.items():
            self._by_assignment[assignment].complete_all(some)

    def drop(self, records: Iterable[Record]) -> None:
        """Note that *records* will have no completion."""
        for record in records:
            self.dropped(record.assignment, 1)

    def dropped(self, assignment: Assignment, count: int) -> None:
        """Note that *count* records of *assignment* will have no completion."""
        if (partition := self._by_assignment.get(assignment)) is not None:
            partition.dropped += count
