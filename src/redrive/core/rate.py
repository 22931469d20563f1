"""
How many letters a queue's rate lets begin.

Owns the token bucket: it refills with time and holds at most a second's worth of letters, but always room for one.
Knows no clock and no store: the caller brings `now`, in seconds of any one clock.
"""

from __future__ import annotations

from typing import NamedTuple

_CLOSE = 1e-9  # letters: ten refills of a tenth make one letter, however floats round


class Bucket(NamedTuple):
    """How many letters may begin, and when that was counted."""

    allowance: float
    counted: float  # seconds


def full(rate: float, now: float) -> Bucket:
    """Return the bucket of a queue that has *rate* from now on: a second's worth may begin at once."""
    return Bucket(max(1.0, rate), now)


def refilled(bucket: Bucket, rate: float, now: float) -> Bucket:
    """Return *bucket* as it stands at *now*; a clock that was set back earns nothing."""
    earned = max(0.0, now - bucket.counted) * rate
    return Bucket(min(max(1.0, rate), bucket.allowance + earned), now)


def room(bucket: Bucket) -> int:
    """Return how many letters may begin now."""
    return max(0, int(bucket.allowance + _CLOSE))


def taken(bucket: Bucket, letters: int) -> Bucket:
    """Return *bucket* after *letters* began."""
    return bucket._replace(allowance=bucket.allowance - letters)
