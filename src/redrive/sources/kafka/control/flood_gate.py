"""
Floods of failures.

Owns the rule that tells a broken dependency from broken records: *limit* records in a row that fail without one
success. Then a dead-letter topic would only fill up, so consuming pauses and the failed records are held and tried
again. Failures that are the record's own fault, or that stopped a running worker, do not count. Knows no Kafka
client.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from redrive.sources.kafka.records.disposition import Disposition

if TYPE_CHECKING:
    from collections.abc import Collection

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.record import Assignment, Record

_log = logging.getLogger("redrive.kafka")
_OWN_FAULT = frozenset({Disposition.CRASH_LOOP, Disposition.STALLED, Disposition.TERMINAL})


class FloodGate:
    """Counts failures in a row; with *limit* 0 it never shuts."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.in_a_row = 0
        self.is_shut = False

    def succeeded(self) -> None:
        """Note a success: the dependency works."""
        self.in_a_row = 0
        self.is_shut = False

    def open_a_little(self) -> None:
        """Let records in again although none has succeeded; the first that fails shuts the gate and is held."""
        self.in_a_row = self._limit
        self.is_shut = False

    def holds(self, disposition: Disposition | None) -> bool:
        """Note a record that was given up; return True if it is to be held instead of dead-lettered."""
        if not self._limit or disposition in _OWN_FAULT:
            return False
        self.in_a_row += 1
        self.is_shut = self.is_shut or self.in_a_row > self._limit
        return self.is_shut


class HeldRecords:
    """Records that failed while *gate* was shut; one of them is tried every *cooldown* seconds until one succeeds."""

    def __init__(self, gate: FloodGate, cooldown: float, clock: Clock) -> None:
        self._gate, self._cooldown, self._clock = gate, cooldown, clock
        self._records: list[Record] = []
        self._probe_at = 0.0

    def __len__(self) -> int:
        """Return how many are held."""
        return len(self._records)

    def hold(self, event: CompletionEvent) -> None:
        """Keep the record of *event*."""
        if not self._records:
            self._probe_at = self._clock.monotonic() + self._cooldown
            _log.error("too many records fail in a row; consuming pauses until one succeeds: %s", event.error)
        self._records.append(event.record)

    def drop(self, leaving: Collection[Assignment]) -> list[Record]:
        """Remove and return the records of revoked partitions: their next owner gets them."""
        dropped = [record for record in self._records if record.assignment in leaving]
        if dropped:
            self._records = [record for record in self._records if record.assignment not in leaving]
        return dropped

    def pop_due(self, now: float) -> list[Record]:
        """Remove and return what to try now: one record while the gate is shut, all of them once it is open."""
        if not self._records or (self._gate.is_shut and now < self._probe_at):
            return []
        held = (record for record in self._records if not record.assignment.closed)
        ordered = sorted(
            held, key=lambda record: record.offset
        )  # a probe that failed again stays before its key's next
        last = 1 if self._gate.is_shut else len(ordered)
        again, self._records = ordered[:last], ordered[last:]
        self._probe_at = now + self._cooldown
        for record in again:
            record.attempts, record.began, record.first_failed, record.ended = 0, 0.0, 0.0, False
        return again
