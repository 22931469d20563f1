"""
The ends of a partition's log.

Owns asking for them until the partition has a leader: a topic that was created a moment ago has none yet. Blocks; for
commands and threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from redrive.engine.clock import SystemClock

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

    from redrive.engine.clock import Clock

_REST = 0.1  # seconds between two requests
_ELECTING = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})


def log_ends(client: Consumer, place: TopicPartition, limit: float, clock: Clock | None = None) -> tuple[int, int]:
    """Return the first offset of the log and the one after its last; raise KafkaException after *limit* seconds."""
    time = clock or SystemClock()
    end = time.monotonic() + limit
    while True:
        try:
            low, high = client.get_watermark_offsets(place, limit)
        except KafkaException as error:
            if error.args[0].code() not in _ELECTING or time.monotonic() >= end:
                raise
            time.block(_REST)
        else:
            return low, high
