"""
The first documents of a replay, watched.

Owns the question whether a node has processed them, by the offsets that its engines have committed, and whether one of
them is in the node's DLQ or quarantine again. Blocks; for commands and threads. Knows no ledger.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from redrive.engine.clock import SystemClock
from redrive.sources.pipeline.admin.lanes.ledger import LaneLedger, letters_of
from redrive.sources.pipeline.admin.lanes.processed import processed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.pipeline.admin.lanes.lane_letter import LaneLetter
    from redrive.sources.pipeline.admin.lanes.sending import SentPlace

_LOOK = 0.3  # seconds between two looks
PATIENCE = 120.0  # seconds that a canary may take


class CanaryVerdict(NamedTuple):
    """What became of a canary."""

    is_good: bool
    came_back: int
    message: str


class Canary:
    """Watches documents that were sent to the input of a node whose engines are *group*; *lanes* are its lanes."""

    def __init__(
        self, kafka: KafkaConfig, group: str, lanes: Sequence[str], *, patience: float = PATIENCE,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._kafka, self._group, self._lanes = kafka, group, lanes
        self._patience, self._clock = patience, clock or SystemClock()

    def watch(self, sent: Sequence[tuple[LaneLetter, SentPlace]]) -> CanaryVerdict:
        """Wait until the node has processed *sent*; return whether it did so without failing one again."""
        end, count = self._clock.monotonic() + self._patience, len(sent)
        while left := self._unprocessed([place for _, place in sent]):
            if self._clock.monotonic() >= end:
                late = f"{left} of {count} canaries were not processed within {self._patience:g} s; does an engine run?"
                return CanaryVerdict(is_good=False, came_back=0, message=late)
            self._clock.block(_LOOK)
        came_back = self._came_back({letter.place for letter, _ in sent})
        told = f"{came_back} of {count} canaries failed again" if came_back else _went_through(count)
        return CanaryVerdict(not came_back, came_back, told)

    def _unprocessed(self, places: Sequence[SentPlace]) -> int:
        done = {topic: processed(self._kafka, self._group, topic) for topic in {place.topic for place in places}}
        return sum(not done[place.topic][place.partition].done.has(place.offset) for place in places)

    def _came_back(self, replays: set[str]) -> int:
        found = set[str]()
        for topic in self._lanes:
            with closing(LaneLedger(self._kafka, topic)) as ledger:
                for letters in letters_of(self._kafka, ledger):
                    found |= {letter.message.stream.replay_id for letter in letters} & replays
        return len(found)


def _went_through(count: int) -> str:
    return "the canary went through" if count == 1 else f"{count} canaries went through"
