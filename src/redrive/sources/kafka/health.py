"""
The health of a consumer.

Owns its values: green, degraded (it works, an operator should look) and red (something is stopped until it is
repaired), the counts, and the status of a partition. Knows no part that reports them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class Health:
    """A colour and, unless it is green, the reasons."""

    status: Literal["green", "degraded", "red"] = "green"
    reasons: tuple[str, ...] = ()


@dataclass(slots=True)
class Counts:
    """What the consumer has done so far."""

    received: int = 0
    skipped: int = 0  # already done by an earlier owner
    processed: int = 0  # handled successfully
    failed: int = 0  # given up
    retries: int = 0  # tries that failed and will be repeated
    again: Counter[int] = field(default_factory=Counter)  # records by the tries they took, if more than one
    dlq_published: int = 0  # confirmed in the dead-letter topic
    dlq_pending: int = 0
    dlq_pending_age: float = 0.0  # seconds that the oldest of them has waited
    dlq_failures: int = 0  # publishes that the broker refused
    commit_failures: int = 0
    late: int = 0  # results of partitions that were revoked before
    in_flight: int = 0  # received and not done
    paused: int = 0  # partitions


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The status of one partition."""

    topic: str
    partition: int
    in_flight: int
    lag: int | None  # None until the broker has reported the end of the log
    watermark_age: float  # seconds that one record has held back commits
    gaps: int  # ranges that are done beyond the watermark
    paused: bool
    halted: bool


Standing = PartitionStatus  # the name until 0.1


class DeadLetterCounts(NamedTuple):
    """What became of dead letters so far."""

    published: int = 0
    pending: int = 0
    pending_age: float = 0.0  # seconds that the oldest of them has waited
    failures: int = 0


def judge(halted: list[str], degraded: list[str]) -> Health:
    """Return the health that these reasons amount to."""
    if halted:
        return Health("red", (*halted, *degraded))
    return Health("degraded", tuple(degraded)) if degraded else Health()
