"""
Records behind a dead letter of their key.

Owns the opt-in rule of strict order: once a record is a dead letter, later records of its key do not run. They go to
the dead-letter topic behind it as `parked`, in their order, until an operator unparks the key. Records that a replay
sent back run. Runs on the event loop's thread, between the ordering and the engine. Knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.core.letter import Category, Failure
from redrive.sources.kafka.dead_letters.headers import NAMESPACE
from redrive.sources.kafka.execution.work_manager import WorkManager
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus
from redrive.sources.kafka.records.disposition import Disposition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redrive.sources.kafka.config_checks import Ordering
    from redrive.sources.kafka.dead_letters.parked_keys import ParkedKeys
    from redrive.sources.kafka.execution.engine import Broke, ExecutionEngine
    from redrive.sources.kafka.records.record import Record

_REPLAYS = f"{NAMESPACE}replays"
_BEHIND = Failure(
    error_type="Parked",
    message="an earlier record of its key is a dead letter",
    category=Category.PERMANENT,
    rule="parked behind a dead letter of its key",
    terminal=True,
    fingerprint=Disposition.PARKED,
)


class ParkingWorkManager(WorkManager):
    """Schedules records in order, and parks those whose key is in *keys*."""

    def __init__(
        self,
        engine: ExecutionEngine,
        ordering: Ordering,
        deliver: Callable[[list[CompletionEvent]], None],
        *,
        keys: ParkedKeys,
        suspects: ExecutionEngine | None = None,
        room: int = 20_000,
        broke: Broke | None = None,
    ) -> None:
        super().__init__(engine, ordering, deliver, suspects=suspects, room=room, broke=broke)
        self._parked = keys

    def take(self, records: Iterable[Record]) -> None:
        """Schedule *records*; those of parked keys complete at once."""
        super().take(self._fit(records))

    def take_isolated(self, records: Iterable[Record]) -> None:
        """Schedule *records* isolated; those of parked keys complete at once."""
        super().take_isolated(self._fit(records))

    def _fit(self, records: Iterable[Record]) -> list[Record]:
        fit = []
        for record in records:
            if self._parked.holds(record) and not _is_replayed(record):
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
        self._parked.add(record.assignment, record.key)
        waiting = self.chains.drop(record)
        self._keep(event)
        for behind in waiting:
            self._keep(_parked(behind))
        return None


def _is_replayed(record: Record) -> bool:
    return any(name == _REPLAYS for name, _ in record.headers)


def _parked(record: Record) -> CompletionEvent:
    return CompletionEvent(record, CompletionStatus.FAILURE, record.attempts, _BEHIND, Disposition.PARKED)
