"""
How the inbox works: tries, room, limits.

Owns the values and their defaults. `environment` reads them from texts; knows no source and no environment.
"""

from __future__ import annotations

import msgspec

from redrive.core.policy import RetryPolicy

QUEUE = "inbox"


class InboxConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every source of an inbox."""

    max_attempts: int = 5  # tries of one event, the first included
    retry_base_delay: float = 5.0  # seconds; the first wait is twice as long, as the formula says
    retry_max_delay: float = 300.0  # seconds
    queue_maxsize: int = 10_000  # unfinished events
    retention_days: float | None = 30.0  # completed events, counted from completion; None keeps them
    retention_failed_days: float | None = None  # dead letters stay unless this is set
    max_body: int = 1_048_576  # bytes, as they arrive and unpacked; a source may say more
    max_headers: int = 32_768  # bytes of names and values
    max_header_count: int = 100
    receive_seconds: float = 10.0  # from the first byte of a request to its last
    max_receiving: int = 268_435_456  # bytes of all bodies that arrive at one time
    retry_after: int = 5  # seconds that a sender is asked to wait when the queue is full or the store is away

    @property
    def policy(self) -> RetryPolicy:
        """Return the policy of handlers that were given none, and of forwards."""
        return RetryPolicy.inbox(self.retry_base_delay, self.retry_max_delay, self.max_attempts)
