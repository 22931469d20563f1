"""
How the consumer is.

Owns the words for it: green, degraded (it works, somebody should look) and red (something
stands still until it is repaired). Knows nothing of how they come about.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Health:
    """One look at the consumer: a colour and, unless it is green, the reasons."""

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
    again: Counter[int] = field(default_factory=Counter)  # how many ended after so many tries; once is not counted
    dlq_published: int = 0  # … and confirmed in the dead-letter topic
    dlq_pending: int = 0
    dlq_pending_age: float = 0.0  # seconds that the oldest of them has waited
    dlq_failures: int = 0  # publishes that the broker did not take
    commit_failures: int = 0
    late: int = 0  # results of partitions that were no longer ours
    in_flight: int = 0  # received and not done
    paused: int = 0  # partitions


@dataclass(frozen=True, slots=True)
class Standing:
    """One look at one partition."""

    topic: str
    partition: int
    in_flight: int
    lag: int | None  # unknown until the broker has said where the log ends
    watermark_age: float  # seconds that one record has held back commits
    gaps: int  # stretches that are done beyond the watermark
    paused: bool
    halted: bool


def judge(halted: list[str], degraded: list[str]) -> Health:
    """Return the health that these reasons amount to."""
    if halted:
        return Health("red", (*halted, *degraded))
    return Health("degraded", tuple(degraded)) if degraded else Health()
