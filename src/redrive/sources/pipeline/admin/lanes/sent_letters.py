"""
Which letters of one partition of a lane were sent away.

Owns the ranges of offsets that operators have sent back, readmitted or moved, and the note of a commit that keeps
them: an offset below which everything is sent, and a map of what is sent beyond it. A letter stays in its topic when
it is sent, so this is what keeps a second replay from sending it again. Pure: knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redrive.sources.kafka.offsets.done_map import fits, read_map, write_map

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.sources.kafka.offsets.tracker import Ranges


class SentNote(NamedTuple):
    """What is committed for a partition."""

    offset: int  # everything below is sent
    text: str  # the map of what is sent beyond
    is_whole: bool  # no: the map is too large for a commit, and a part of what was sent is not noted


class SentLetters:
    """The offsets of one partition that were sent; *low* and *high* are the ends of its log."""

    def __init__(self, low: int = 0, high: int = 0, *, offset: int = -1, text: str | None = None) -> None:
        self.low = low
        known = offset if 0 <= offset <= high else 0  # an offset beyond the end: the topic was deleted and made again
        self._ranges: Ranges = [(0, max(low, known))] if max(low, known) else []
        if known == offset:
            self.add_ranges(read_map(offset, text, end=high))

    def has(self, offset: int) -> bool:
        """Whether the letter at *offset* was sent."""
        return any(low <= offset < high for low, high in self._ranges)

    def add(self, offsets: Iterable[int]) -> None:
        """Note that the letters at *offsets* are sent."""
        self.add_ranges([(offset, offset + 1) for offset in offsets])

    def add_ranges(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Note that the letters in *ranges* are sent."""
        merged: Ranges = []
        for low, high in sorted([*self._ranges, *ranges]):
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        self._ranges = merged

    def merge(self, other: SentLetters) -> None:
        """Note what another operator has sent meanwhile."""
        self.add_ranges(other._ranges)

    def count(self, high: int) -> int:
        """Return how many offsets of the log, up to *high*, are sent."""
        spans = (min(end, high) - max(start, self.low) for start, end in self._ranges)
        return sum(span for span in spans if span > 0)

    @property
    def note(self) -> SentNote:
        """What to commit."""
        first = self._ranges[0] if self._ranges else (0, 0)
        offset = first[1] if first[0] == 0 else 0
        beyond = [each for each in self._ranges if each[0] > offset]
        return SentNote(offset, write_map(offset, beyond), fits(offset, beyond))
