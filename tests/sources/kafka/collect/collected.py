"""Dead letters as other systems write them, and collecting them."""

from __future__ import annotations

import asyncio

from tests.sources.kafka.stage import LIMIT

from redrive.core.query import parse
from redrive.sources.kafka import Collector

SPRING = [
    ("own", b"h"),
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", (3).to_bytes(4, "big")),
    ("kafka_dlt-original-offset", (17).to_bytes(8, "big")),
    ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
    ("kafka_dlt-exception-cause-fqcn", b"java.net.ConnectException"),
    ("kafka_dlt-exception-message", b"Connection refused"),
]
CONNECT = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"0"),
    ("__connect.errors.offset", b"5"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.exception.message", b"not JSON"),
]
SHARE = [
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"1"),
    ("__dlq.errors.offset", b"9"),
    ("__dlq.errors.group", b"shippers"),
    ("__dlq.errors.delivery.count", b"5"),
]


async def collect(stage, store, *topics, **options):
    """Collect what the topics hold, and return the collector."""
    collector = Collector(stage.kafka(), list(topics) or [stage.dlq], store, group=stage.group, **options)
    await asyncio.wait_for(collector.run(until_end=True), LIMIT)
    return collector


async def letters(store):
    """Return the dead letters that are kept."""
    return (await store.find(parse("status:failed"), limit=100)).letters
