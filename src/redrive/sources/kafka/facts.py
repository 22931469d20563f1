"""
Facts of a consumer in its group, in the log.

Owns these facts and how they name partitions: `orders[0-3,7]`. Each is one line with fields, like the facts of
workers. Knows no Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

import msgspec

from redrive.signals.log import write

if TYPE_CHECKING:
    from collections.abc import Iterable


class ConsumerStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer begins to join its group."""

    name: ClassVar[str] = "redrive.kafka.consumer.started"
    group: str
    topics: tuple[str, ...]


class PartitionsAssigned(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions were assigned to a consumer; none means that other members of the group have them all."""

    name: ClassVar[str] = "redrive.kafka.partitions.assigned"
    group: str
    partitions: tuple[str, ...]
    assigned: int  # how many it has now


class PartitionsRevoked(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions were revoked after the consumer had drained them; lost ones were revoked at once."""

    name: ClassVar[str] = "redrive.kafka.partitions.revoked"
    group: str
    partitions: tuple[str, ...]
    assigned: int
    lost: bool = False


class ConsumerStopped(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer has committed, left its group and ended."""

    name: ClassVar[str] = "redrive.kafka.consumer.stopped"
    group: str
    why: str
    processed: int = 0
    failed: int = 0


class PartitionPlace(Protocol):
    """A topic and the number of a partition."""

    topic: str
    partition: int


KAFKA_FACTS = (ConsumerStarted, PartitionsAssigned, PartitionsRevoked, ConsumerStopped)
Fact = ConsumerStarted | PartitionsAssigned | PartitionsRevoked | ConsumerStopped


def tell(fact: Fact) -> None:
    """Write one line about *fact*."""
    write("info", fact.name, msgspec.structs.asdict(fact))


def tell_assigned(group: str, places: Iterable[PartitionPlace], assigned: int) -> None:
    """Log that *places* were assigned, *assigned* in total."""
    names = named((place.topic, place.partition) for place in places)
    tell(PartitionsAssigned(group=group, partitions=names, assigned=assigned))


def tell_revoked(group: str, places: Iterable[PartitionPlace], assigned: int, *, lost: bool = False) -> None:
    """Log that *places*, if there are any, were revoked, and how many are left."""
    if names := named((place.topic, place.partition) for place in places):
        tell(PartitionsRevoked(group=group, partitions=names, assigned=assigned, lost=lost))


def named(places: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Return partitions by topic, in order, with consecutive numbers as one span."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(places):
        by_topic.setdefault(topic, []).append(number)
    return tuple(f"{topic}[{','.join(_spans(numbers))}]" for topic, numbers in by_topic.items())


def _spans(numbers: list[int]) -> Iterable[str]:
    begin = last = numbers[0]
    for number in [*numbers[1:], None]:
        if number is not None and number == last + 1:
            last = number
            continue
        yield str(begin) if begin == last else f"{begin}-{last}"
        if number is not None:
            begin = last = number
