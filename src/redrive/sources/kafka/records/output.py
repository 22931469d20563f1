"""
A message that a worker sends on.

Owns the value that a worker returns in the exactly-once mode. Knows no Kafka client.
"""

from __future__ import annotations

import msgspec

ANY_PARTITION = -1


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a worker returns; the transaction that commits its record sends it."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = ANY_PARTITION
