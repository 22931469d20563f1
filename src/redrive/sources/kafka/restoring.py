"""
What an earlier owner of a partition left for us.

Owns reading what was committed, and the map of what is done beyond it, when partitions are
assigned. Where records may run twice an answer that does not come means that some do; where
they may not, it is an error. Blocks; used by the control thread only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from redrive.errors import SourceError
from redrive.sources.kafka.boots import read_note
from redrive.sources.kafka.offset_map import read_map

if TYPE_CHECKING:
    from redrive.engine.clock import Clock
    from redrive.sources.kafka.offsets import Ranges

_log = logging.getLogger("redrive.kafka")
_ASKS = 3  # times that the broker is asked for what was committed
_REQUEST = 10.0  # seconds for a request to the broker
_REST = 0.01  # seconds between two of them


def committed(consumer: Consumer, places: list[TopicPartition], clock: Clock, *, exact: bool) -> list[TopicPartition]:
    """Return *places* with what was committed there; raise SourceError if that is not known and must be *exact*."""
    for _ in range(_ASKS):
        try:
            return consumer.committed(places, timeout=_REQUEST)
        except KafkaException as error:
            _log.warning("what is done beyond the committed offsets cannot be read: %s", error.args[0].str())
            clock.block(_REST)
    if exact:
        raise SourceError("what was committed cannot be read, and exactly once needs it; start the consumer again")
    return places  # without maps some records run again; without an assignment none would run


def done_beyond(consumer: Consumer, place: TopicPartition, *, exact: bool) -> Ranges:
    """Return what is done beyond the offset of *place*; raise SourceError if that is not known and must be *exact*."""
    if place.offset < 0 or not place.metadata:
        return []
    try:
        _, end = consumer.get_watermark_offsets(place, timeout=_REQUEST)
    except KafkaException as error:
        if exact:
            raise SourceError(f"the end of {place.topic!r} cannot be read: {error.args[0].str()}") from None
        return []
    return read_map(place.offset, read_note(place.metadata)[1], end=end)
