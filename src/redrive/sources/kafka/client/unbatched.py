"""
Messages that share their batch with no other.

Owns how a producer is made to send each by itself. A broker measures whole batches by what a topic takes,
and refuses all of one that is larger: only of a message that was sent alone it is known that it does not
fit. Knows no topic.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
ALONE: dict[str, int] = {"batch.num.messages": 1, "linger.ms": 0}
