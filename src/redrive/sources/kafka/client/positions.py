"""
Where an assigned partition begins.

Owns reading the committed offset and the map of what is done beyond it. The client is not left to read the committed
offset by itself: if the coordinator is just starting, the client does not ask again and never fetches. Blocks; used
by the polling thread only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from redrive.errors import SourceError
from redrive.sources.kafka.offsets.done_map import read_map
from redrive.sources.kafka.offsets.start_note import read_note

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.offsets.tracker import Ranges

_log = logging.getLogger("redrive.kafka")
_GLANCE = 2.0  # seconds for a request; a request to stop is noticed after that
_REST = 0.1  # seconds between two of them
_REFUSALS = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED})
_GONE = frozenset({
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - the client's own names
})  # fmt: skip
_RESETS = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), OFFSET_BEGINNING),
    **dict.fromkeys(("latest", "largest", "end"), OFFSET_END),
}


def committed(
    consumer: Consumer, places: list[TopicPartition], clock: Clock, is_stopping: Callable[[], bool]
) -> list[TopicPartition]:
    """
    Return *places* with their committed offsets: retry until they are known; return none if the consumer stops.

    Raise SourceError if retrying is pointless.
    """
    while not is_stopping():
        try:
            found = consumer.committed(places, timeout=_GLANCE)
            errors = [place.error for place in found if place.error is not None]
        except KafkaException as error:
            errors = [error.args[0]]
        if not errors:
            return found
        if errors[0].fatal() or errors[0].code() in _REFUSALS:
            raise SourceError(f"cannot read the committed offsets: {errors[0].str()}; allow this client its group")
        _log.warning("cannot read the committed offsets yet, will retry: %s", errors[0].str())
        clock.block(_REST)
    return []


def start_of(place: TopicPartition, reset: str) -> TopicPartition:
    """Return where to begin at *place*: at the committed offset or, without one, where auto.offset.reset says."""
    offset = place.offset if place.offset >= 0 else _RESETS.get(reset, OFFSET_INVALID)
    return TopicPartition(place.topic, place.partition, offset)


def begin(consumer: Consumer, starts: list[TopicPartition], *, cooperative: bool) -> None:
    """Consume from *starts* on; *cooperative* ones are added to the assigned ones."""
    if cooperative:
        consumer.incremental_assign(starts)
    else:
        consumer.assign(starts)
    if starts:
        consumer.resume(starts)  # the client keeps a partition paused that was paused when it was revoked


def done_beyond(consumer: Consumer, place: TopicPartition, clock: Clock, is_stopping: Callable[[], bool]) -> Ranges:
    """
    Return what is done beyond the offset of *place*: retry until it is known; return none if the consumer stops.

    Raise SourceError if retrying is pointless.
    """
    text = read_note(place.metadata)[1] if place.offset >= 0 else ""
    while text and not is_stopping():
        try:
            return read_map(place.offset, text, end=consumer.get_watermark_offsets(place, timeout=_GLANCE)[1])
        except KafkaException as error:
            if error.args[0].code() in _GONE:
                return []
            if error.args[0].fatal() or error.args[0].code() in _REFUSALS:
                raise SourceError(
                    f"cannot read the end of {place.topic!r}: {error.args[0].str()}; allow this client the topic"
                ) from None
            _log.warning(
                "cannot read the end of %s[%d] yet, will retry: %s", place.topic, place.partition, error.args[0].str()
            )
            clock.block(_REST)
    return []
