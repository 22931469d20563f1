"""
Which offset of one partition is safe to commit.

Owns the window of records that were received and are not all done. Kafka keeps a single offset per partition, but
records finish out of order, so the offset to commit is that of the first received record that is not done. Holes from
compaction and transaction markers need no handling. Knows no Kafka client.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from redrive.sources.kafka.records.record import Record

Ranges = list[tuple[int, int]]  # half-open, ascending, apart from each other


class OffsetTracker:
    """
    The records of one partition between poll and commit, in the order of their offsets.

    *restored* are the ranges that an earlier owner had done beyond the offset it committed.
    """

    def __init__(self, restored: Sequence[tuple[int, int]] = ()) -> None:
        self._window: deque[int] = deque()  # offsets, not records, so that content is freed early
        self._done: set[int] = set()  # the done ones of them; never the first
        self._restored = deque(restored)
        self._next: int | None = None  # the offset after the last one received
        self.open = 0  # received and not done
        self.skipped = 0  # received, but done by an earlier owner

    def __len__(self) -> int:
        """Return how many records stand between the watermark and the last one received."""
        return len(self._window)

    @property
    def next_offset(self) -> int | None:
        """The offset after the last one received, or None before the first."""
        return self._next

    @property
    def watermark(self) -> int | None:
        """The offset to commit: everything below is done. None before the first record."""
        return self._window[0] if self._window else self._past

    def add(self, record: Record) -> bool:
        """
        Note that *record* was received; return False if an earlier owner has already done it.

        Offsets must grow; the poller starts a new tracker when one does not.
        """
        offset = record.offset
        self._next = offset + 1
        if self._restored and self._is_restored(offset):
            self.skipped += 1
            if self._window:
                self._window.append(offset)
                self._done.add(offset)
            return False
        self._window.append(offset)
        self.open += 1
        return True

    def add_all(self, records: list[Record]) -> list[Record]:
        """Note that *records*, at least one, were received; return those that no earlier owner has done."""
        if self._restored:
            return [record for record in records if self.add(record)]
        self._window.extend([record.offset for record in records])
        self._next = records[-1].offset + 1
        self.open += len(records)
        return records

    def complete(self, record: Record) -> None:
        """Note that *record*, which was added, is handled or safely dead-lettered; a second time changes nothing."""
        self.complete_all((record,))

    def complete_all(self, records: Iterable[Record]) -> None:
        """Do the same for *records*, in any order."""
        window, done = self._window, self._done
        for record in records:
            if not record.done:
                record.done = True
                self.open -= 1
                done.add(record.offset)
        while window and window[0] in done:
            done.remove(window.popleft())

    def reached(self, offset: int) -> None:
        """Note that the log ends at *offset*, and that every record below was received."""
        if self._next is None or offset > self._next:
            self._next = offset

    def done_beyond(self) -> Ranges:
        """Return the ranges above the watermark that are done; what was never received counts with its left."""
        if self._done:
            return self.if_done(())[1]
        return list(self._not_seen_again(self._next if self._window else self._past))

    def if_done(self, offsets: Container[int]) -> tuple[int | None, Ranges]:
        """Return the watermark, and the ranges done beyond it, as they would be if *offsets* were done too."""
        watermark: int | None = None
        ranges: Ranges = []
        start: int | None = None
        for offset in self._window:
            if offset in self._done or offset in offsets:
                start = offset if start is None else start
                continue
            if watermark is None:
                watermark = offset
            elif start is not None:
                ranges.append((start, offset))
            start = None
        is_open = watermark is not None and start is None  # the last one received is open, so nothing follows it
        tail = self._next if is_open else self._past
        if watermark is not None and start is not None and tail is not None:
            ranges.append((start, tail))
        return tail if watermark is None else watermark, [*ranges, *self._not_seen_again(tail)]

    @property
    def _past(self) -> int | None:
        """The offset after the last one received, or after what an earlier owner had done from there on."""
        for low, high in self._restored:
            if self._next is None or low > self._next:
                break
            if high > self._next:
                return high
        return self._next

    def _not_seen_again(self, at: int | None) -> Iterator[tuple[int, int]]:
        """Yield what an earlier owner had done from *at* on, which we have not received: the next owner needs it."""
        for low, high in self._restored:
            if at is None:
                yield low, high
            elif high > at:
                yield max(low, at), high

    def _is_restored(self, offset: int) -> bool:
        while self._restored and self._restored[0][1] <= offset:
            self._restored.popleft()
        return bool(self._restored) and self._restored[0][0] <= offset
