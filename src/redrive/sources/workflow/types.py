"""
What users of the workflow queue hold.

Owns the names and fields of a failed task, its statuses and the strategies. Knows no letter and no store.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from redrive.core.letter import Category
from redrive.sources.workflow.policies import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

ErrorCategory = Category


class DeadLetterStatus(StrEnum):
    """Where a failed task stands."""

    PENDING = "pending"  # waits for its next retry, or (policy never) for a person
    RETRYING = "retrying"  # a process runs its callback now
    EXHAUSTED = "exhausted"  # its retries are used up
    COMPLETED = "completed"  # a retry succeeded
    ARCHIVED = "archived"  # a person decided that it needs no retry


class DLQIntegrationStrategy(StrEnum):
    """Which failed workflows are enqueued."""

    AUTOMATIC = "automatic"  # all
    SELECTIVE = "selective"  # those whose category can heal
    MANUAL = "manual"  # only those that the caller enqueues
    DISABLED = "disabled"  # none


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTask:
    """One failed workflow. All datetimes are aware and in UTC."""

    task_id: str
    task: dict[str, Any]
    repos: list[str]
    error: str  # the first
    failed_at: datetime
    retry_count: int = 0  # retries of this cycle that ended, without the run that began it
    max_retries: int = 3
    retry_policy: RetryPolicy | str = RetryPolicy.EXPONENTIAL  # a word beyond the four, such as custom, is text
    next_retry_at: datetime | None = None  # None: no retry is planned
    status: DeadLetterStatus = DeadLetterStatus.PENDING
    metadata: dict[str, Any] = field(default_factory=dict)
    error_category: str | None = None
    last_error: str | None = None  # the newest
    total_attempts: int = 0  # runs here, over all cycles
    updated_at: datetime | None = None
    letter_id: str = ""  # `redrive show` takes it
    held: str | None = None  # what keeps it from running, such as "held by breaker 'payments' until …"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data: enums as their words, datetimes as ISO 8601 in UTC."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the task that `to_dict` wrote; unknown keys are ignored, a datetime without zone is UTC."""
        known = {each.name for each in fields(cls)}
        found = {name: value for name, value in data.items() if name in known}
        for name, read in _READ.items():
            if found.get(name) is not None:
                found[name] = read(found[name])
        return cls(**found)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value) if isinstance(value, StrEnum) else value


def _word(value: str) -> RetryPolicy | str:
    return RetryPolicy(value) if value in list(RetryPolicy) else value


def _moment(value: Any) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return moment.replace(tzinfo=UTC) if moment.utcoffset() is None else moment.astimezone(UTC)


_READ: dict[str, Any] = {
    "failed_at": _moment,
    "next_retry_at": _moment,
    "updated_at": _moment,
    "retry_policy": _word,
    "status": DeadLetterStatus,
}
