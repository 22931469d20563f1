"""
The share of a partition in a transaction.

Owns which results of a partition one transaction can commit: as many as its offset map can mark as done. Knows no
Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redrive.core.trace_context import continuing
from redrive.sources.kafka.offsets.done_map import fits, write_map

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.sources.kafka.control.partition import Partition
    from redrive.sources.kafka.offsets.done_map import MapRoom
    from redrive.sources.kafka.records.output import Output
    from redrive.sources.kafka.records.record import Record


class RecordResult(NamedTuple):
    """The result of a record: the messages that must be in the transaction that commits it."""

    record: Record
    messages: tuple[Output, ...]
    is_dead: bool
    since: float = 0.0  # when it became a dead letter


class PartitionPart(NamedTuple):
    """One partition's share of a transaction."""

    partition: Partition
    place: tuple[int, str]  # offset and metadata to commit
    results: list[RecordResult]


def outputs_of(record: Record) -> tuple[Output, ...]:
    """Return what the worker of *record* sends on, with the trace of its try unless the worker named another."""
    trace = record.trace
    if trace is None:
        return record.outputs
    return tuple(
        msgspec.structs.replace(each, headers=tuple(continuing(each.headers, trace))) for each in record.outputs
    )


def part_of(partition: Partition, results: Iterable[RecordResult], room: MapRoom) -> PartitionPart | None:
    """Return what can be committed of *partition* now, None if that is nothing."""
    own = [result for result in results if result.record.assignment is partition.assignment]
    if not own and not partition.dirty:
        return None
    own.sort(key=lambda result: result.record.offset)
    taken = own[: _fitting(partition, own, room)]
    watermark, ranges = partition.tracker.if_done({result.record.offset for result in taken})
    if watermark is None:
        return None
    partition.gaps = len(ranges)
    place = watermark, write_map(watermark, ranges, limit=room.limit, alphabet=room.alphabet)
    partition.dirty = False
    return None if place == partition.committed and not taken else PartitionPart(partition, place, taken)


def _fitting(partition: Partition, results: list[RecordResult], room: MapRoom) -> int:
    """Return how many of *results*, lowest offset first, fit into the map."""
    if _fits(partition, results, room):  # nearly always
        return len(results)
    low, high = 0, len(results) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(partition, results[:middle], room) else (low, middle - 1)
    return low


def _fits(partition: Partition, results: list[RecordResult], room: MapRoom) -> bool:
    watermark, ranges = partition.tracker.if_done({result.record.offset for result in results})
    return watermark is None or fits(watermark, ranges, limit=room.limit, alphabet=room.alphabet)
