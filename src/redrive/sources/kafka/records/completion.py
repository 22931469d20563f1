"""
What became of a work item.

Owns the one message that execution engines send: one work item, one completion. Knows
neither engines nor offsets.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import Failure
from redrive.core.why import Why, why_of
from redrive.sources.kafka.records.record import Record

if TYPE_CHECKING:
    from redrive.core.moves import Move

_DISPOSITIONS: dict[str, str] = {Why.EXHAUSTED: "retries_exhausted", Why.WORKER_CRASHED: "worker_died"}


class CompletionStatus(StrEnum):
    """How a work item ended; one that is released was given up unhandled, and others will have it."""

    SUCCESS = "success"
    FAILURE = "failure"
    RELEASED = "released"  # because its partition or the consumer goes


class CompletionEvent(msgspec.Struct, frozen=True, gc=False):
    """
    A work item has ended: after which try, counted from 1, and with which error.

    *attempt* is the try that succeeded. Of a FAILURE it is the last one, which is `max_retries` unless
    the work item was given up before; then *failure* is its error and *disposition* says why it is a
    dead letter (`retries_exhausted`, `timeout`, …).
    """

    record: Record
    status: CompletionStatus
    attempt: int
    failure: Failure | None = None
    disposition: str = ""

    @property
    def error(self) -> str | None:
        """The last error as text: its type and, if it has one, its message."""
        return None if self.failure is None else error_text(self.failure)

    @property
    def topic(self) -> str:
        """Where its record comes from."""
        return self.record.topic

    @property
    def partition(self) -> int:
        """Which partition it comes from."""
        return self.record.partition

    @property
    def offset(self) -> int:
        """Where in the partition it stands."""
        return self.record.offset

    @property
    def epoch(self) -> int:
        """Which assignment of the partition it was received in."""
        return self.record.epoch


def error_text(failure: Failure) -> str:
    """Return the type of an error and, if there is one, its message."""
    return f"{failure.error_type}: {failure.message}" if failure.message else failure.error_type


def failed(record: Record, move: Move) -> CompletionEvent:
    """Return the completion of a record that *move* gives up."""
    timed_out = (
        why_of(move.why) is Why.EXHAUSTED and move.failure is not None and move.failure.error_type == "TimeoutError"
    )
    disposition = "timeout" if timed_out else _DISPOSITIONS.get(move.why, move.why.replace(" ", "_"))
    return CompletionEvent(record, CompletionStatus.FAILURE, max(record.attempts, 1), move.failure, disposition)
