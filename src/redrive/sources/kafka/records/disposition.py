"""
Why a record is a dead letter.

Owns the dispositions. Their values are written to the header `x-redrive-disposition`, so a value never changes.
Pure: knows no client and no clock.
"""

from __future__ import annotations

from enum import StrEnum

from redrive.core.failures.describe import type_name
from redrive.core.why import Why, why_of


class Disposition(StrEnum):
    """Why a record is a dead letter. Other producers of dead letters have words of their own."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    TIMEOUT = "timeout"  # retries are exhausted, and the last try timed out
    OUT_OF_TIME = "out_of_time"  # max_retry_time_ms is used up
    TERMINAL = "terminal"  # the worker rejected it, or raised one of terminal_errors
    WORKER_DIED = "worker_died"  # its worker process died too often
    CRASH_LOOP = "crash_loop"  # the consumer itself died too often while only this record ran
    STALLED = "stalled"  # it held back commits for too long, and stall_policy is dlq_head
    PARKED = "parked"  # an earlier record of its key is a dead letter
    FAULT = "redrive_fault"  # redrive itself could not go on with it


_BY_WHY = {
    Why.EXHAUSTED: Disposition.RETRIES_EXHAUSTED,
    Why.OUT_OF_TIME: Disposition.OUT_OF_TIME,
    Why.TERMINAL: Disposition.TERMINAL,
    Why.WORKER_CRASHED: Disposition.WORKER_DIED,
}
_TIMED_OUT = type_name(TimeoutError)


def disposition_of(why: str, error_type: str) -> Disposition:
    """Return the disposition of a record that was given up because of *why*, with this last error."""
    found = _BY_WHY.get(why_of(why) or Why.REDRIVE_FAULT, Disposition.FAULT)
    if found is Disposition.RETRIES_EXHAUSTED and error_type == _TIMED_OUT:
        return Disposition.TIMEOUT
    return found
