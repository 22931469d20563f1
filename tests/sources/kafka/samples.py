"""Records as tests write them."""

from __future__ import annotations

from redrive.sources.kafka.records.record import Assignment, Record


def partition(number: int = 0, *, topic: str = "orders", epoch: int = 1) -> Assignment:
    return Assignment(topic, number, epoch)


def record(
    offset: int = 0, key: bytes | None = b"k", value: bytes | None = b"v", *, of: Assignment | None = None, **parts
):
    return Record(of or partition(), offset, key, value, **parts)
