"""
The completion of a work item.

Owns the one message that execution engines send: one work item, one completion. Knows neither engines nor offsets.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from redrive.core.letter import Failure
from redrive.sources.kafka.records.disposition import Disposition, disposition_of
from redrive.sources.kafka.records.record import Record

if TYPE_CHECKING:
    from redrive.core.moves import Move


class CompletionStatus(StrEnum):
    """How a work item ended. A revoked one is unhandled: the next owner of its partition gets it."""

    SUCCESS = "success"
    FAILURE = "failure"
    REVOKED = "revoked"  # its partition was revoked, or the consumer stops
    RELEASED = "revoked"  # the name until 0.1


class CompletionEvent(msgspec.Struct, frozen=True, gc=False):
    """
    A work item has ended: after which try, counted from 1, and with which error.

    *attempt* is the try that succeeded. For a FAILURE it is the last try, which is `max_retries` unless the work
    item was given up before; *failure* is its error, and *disposition* tells why it is a dead letter.
    """

    record: Record
    status: CompletionStatus
    attempt: int
    failure: Failure | None = None
    disposition: Disposition | None = None

    @property
    def error(self) -> str | None:
        """The last error as text: its type and, if it has one, its message."""
        return None if self.failure is None else error_text(self.failure)

    @property
    def topic(self) -> str:
        """The topic of its record."""
        return self.record.topic

    @property
    def partition(self) -> int:
        """The partition of its record."""
        return self.record.partition

    @property
    def offset(self) -> int:
        """The offset of its record."""
        return self.record.offset

    @property
    def epoch(self) -> int:
        """The assignment of the partition in which its record was received."""
        return self.record.epoch


def error_text(failure: Failure) -> str:
    """Return the type of an error and, if there is one, its message."""
    return f"{failure.error_type}: {failure.message}" if failure.message else failure.error_type


def failed(record: Record, move: Move) -> CompletionEvent:
    """Return the completion of a record that *move* gives up."""
    error_type = "" if move.failure is None else move.failure.error_type
    disposition = disposition_of(move.why, error_type)
    return CompletionEvent(record, CompletionStatus.FAILURE, max(record.attempts, 1), move.failure, disposition)
