"""
What the control thread knows of one partition that is ours.

Owns the numbers between poll and commit of one assignment: its tracker, what was committed,
what is held in memory. Knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.sources.kafka.health import Standing
from redrive.sources.kafka.offsets.tracker import OffsetTracker

if TYPE_CHECKING:
    from redrive.sources.kafka.offsets.tracker import Ranges
    from redrive.sources.kafka.records.record import Assignment, Record


class Partition:
    """One assignment of a partition, as the control thread sees it."""

    __slots__ = (
        "alone", "assignment", "boot_at", "boots", "bytes", "committed", "convicts", "dirty", "dropped", "gaps",
        "halted", "noted", "over_since", "paused", "still_since",
        "tracker", "watermark",
    )  # fmt: skip

    def __init__(self, assignment: Assignment, committed: int, restored: Ranges, now: float) -> None:
        self.assignment = assignment
        self.tracker = OffsetTracker(restored)
        self.committed: tuple[int, str] = (committed, "")  # what the broker has, as far as we know
        self.bytes = 0  # of records that are not done
        self.dropped = 0  # records that will have no completion, because the partition goes
        self.dirty = False
        self.gaps = 0  # stretches that were done beyond the watermark at the last commit
        self.paused = False
        self.over_since: float | None = None
        self.halted: str = ""  # why nothing is committed past some dead letter
        self.watermark: int | None = None
        self.still_since = now  # when the watermark last moved, or had no need to
        self.boots = 0  # starts without a clean end, this one included
        self.boot_at: int | None = None  # the watermark at this start
        self.noted = False  # whether this start is part of what is committed
        self.alone = False  # whether its records run one at a time
        self.convicts = False  # whether its first record has killed the consumer too often
        assignment.state = self

    @property
    def name(self) -> str:
        """How it is called in messages."""
        return f"{self.assignment.topic}[{self.assignment.partition}]"

    @property
    def unresolved(self) -> int:
        """How many records are still to be answered for."""
        return self.tracker.open - self.dropped

    def receive(self, records: list[Record]) -> list[Record]:
        """Note that *records* came in, at least one; return those that are to run."""
        fresh = self.tracker.add_all(records)
        self.bytes += sum([record.size for record in fresh])
        self.dirty = self.dirty or len(fresh) < len(records)
        return fresh

    def complete(self, record: Record) -> None:
        """Note that *record* is done."""
        self.bytes -= record.size
        self.tracker.complete(record)
        self.dirty = True

    def looked_at(self, now: float) -> float:
        """Return for how many seconds the watermark has stood still with work behind it."""
        watermark = self.tracker.watermark
        if watermark != self.watermark or not self.tracker.open:
            self.watermark, self.still_since = watermark, now
        return now - self.still_since

    def standing(self, now: float, end: int) -> Standing:
        """Return where it stands; its log ends at *end*, negative if that is not known."""
        owner = self.assignment
        at = self.committed[0] if self.tracker.watermark is None else self.tracker.watermark
        return Standing(
            topic=owner.topic,
            partition=owner.partition,
            in_flight=self.tracker.open,
            lag=max(0, end - at) if min(end, at) >= 0 else None,
            watermark_age=self.looked_at(now),
            gaps=self.gaps,
            paused=self.paused,
            halted=bool(self.halted),
        )
