"""
Records that wait behind a dead letter of their key.

Owns the opt-in rule of strict order: once a record is a dead letter, later records of its key do
not run, they go to the dead-letter topic behind it as `parked`, in their order, until the key is
released. What is sent back by a replay runs all the same. Happens on the event loop's thread,
between the lanes and the engine. Knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.letter import Category, Failure
from redrive.sources.kafka.dead_letters.headers import NAMESPACE
from redrive.sources.kafka.execution.work_manager import WorkManager
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.sources.kafka.records.record import Record

PARKED = "parked"
_SENT_BACK = f"{NAMESPACE}replays"
_BEHIND = Failure(
    error_type="Parked",
    message="an earlier record of its key is a dead letter",
    category=Category.PERMANENT,
    rule="parked behind a dead letter of its key",
    terminal=True,
    fingerprint=PARKED,
)


class ParkingWorkManager(WorkManager):
    """Schedules records as asked, but parks those whose key has a dead letter."""

    def take(self, records: Iterable[Record]) -> None:
        """Schedule *records*; those of parked keys come back at once."""
        super().take(self._fit(records))

    def take_alone(self, records: Iterable[Record]) -> None:
        """Schedule *records* where they do the least harm; those of parked keys come back at once."""
        super().take_alone(self._fit(records))

    def _fit(self, records: Iterable[Record]) -> list[Record]:
        fit = []
        for record in records:
            if record.key in record.assignment.parked and not _is_sent_back(record):
                self._keep(_parked(record))
            else:
                fit.append(record)
        return fit

    def _completed(self, event: CompletionEvent) -> Record | None:
        record = event.record
        if event.status is not CompletionStatus.FAILURE or record.key is None:
            return super()._completed(event)
        if record.ended:
            return None
        record.ended = True
        record.assignment.parked.add(record.key)
        waiting = self.lanes.drop(record)
        self._keep(event)
        for behind in waiting:
            self._keep(_parked(behind))
        return None


def _is_sent_back(record: Record) -> bool:
    return any(name == _SENT_BACK for name, _ in record.headers)


def _parked(record: Record) -> CompletionEvent:
    return CompletionEvent(record, CompletionStatus.FAILURE, record.attempts, _BEHIND, PARKED)
