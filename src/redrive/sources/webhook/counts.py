"""
What the inbox counts: by source and result, and refusals by their reason.

Owns the words. Labels are names of sources and words of this file, never what a sender wrote. Knows no exporter.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Result(StrEnum):
    """What became of a request to a source."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"  # a duplicate by its id, with another body; the first stays
    IGNORED = "ignored"  # a type that the source does not list
    UNHANDLED = "unhandled"  # kept as failed: the application has no handler
    CHALLENGE = "challenge"  # answered and not kept
    REFUSED = "refused"  # its signature does not hold
    INVALID = "invalid"  # its form does not hold
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    FULL = "full"
    UNAVAILABLE = "unavailable"


@dataclass(slots=True)
class InboxCounts:
    """Counted since the inbox was made."""

    results: Counter[tuple[str, Result]] = field(default_factory=Counter)  # by source and result
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)  # by source and reason
    last: dict[str, float] = field(default_factory=dict)  # when a source last got a 2xx, seconds since the epoch
