"""
What the engines have processed of a node's input topic.

Owns the group's committed offsets, with the map of what is done beyond each, as a value per partition. Joins no group
and commits nothing. Blocks; for commands and threads. Knows no document.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition
from msgspec import Struct

from redrive.errors import SourceError
from redrive.sources.kafka.client.errors import said
from redrive.sources.kafka.client.settings import reader_settings
from redrive.sources.kafka.replay.log_ends import log_ends
from redrive.sources.kafka.replay.reader import REQUEST
from redrive.sources.pipeline.admin.lanes.sent_letters import SentLetters

if TYPE_CHECKING:
    from redrive.sources.kafka.config import KafkaConfig


class ProcessedPart(Struct, frozen=True):
    """One partition: the ends of its log, and what is done in it."""

    low: int
    high: int
    done: SentLetters

    @property
    def left(self) -> int:
        """How many offsets are not done."""
        return self.high - self.low - self.done.count(self.high)


def processed(kafka: KafkaConfig, group: str, topic: str) -> dict[int, ProcessedPart]:
    """Return what *group* has done in each partition of *topic*, none if there is no such topic; raise SourceError."""
    with closing(Consumer(reader_settings(kafka, group))) as client:
        try:
            known = client.list_topics(topic, REQUEST).topics[topic]
            places = [TopicPartition(topic, number) for number in known.partitions]
            found = client.committed(places, REQUEST) if places else []
            return {place.partition: _part(client, place) for place in found}
        except KafkaException as error:
            raise SourceError(f"cannot tell what waits in {topic!r}: {said(error.args[0], kafka)}") from None


def _part(client: Consumer, place: TopicPartition) -> ProcessedPart:
    if place.error is not None:
        raise KafkaException(place.error)
    low, high = log_ends(client, TopicPartition(place.topic, place.partition), REQUEST)
    return ProcessedPart(low, high, SentLetters(low, high, offset=place.offset, text=place.metadata))
