"""
A Kafka consumer with order per key, bounded retries, a dead-letter topic, and a replay.

The first two of Bob's orders have no address. Each is tried twice and goes to the topic `orders.dlq`; Bob's third
order waits for neither. Once PICKUP is set, orders without an address can be picked up, and a replay sends the
dead letters to `orders` again. Needs Kafka (`docker compose up --wait` starts one) and `pip install 'redrive[kafka]'`.
In this folder; Ctrl+C ends a consumer once it has printed its two lines:

    $ python orders.py
    $ redrive kafka consume shop:consumer
    $ redrive kafka dlq stats orders.dlq
    $ redrive kafka replay orders.dlq --exception ValueError --yes --reason "orders can be picked up now"
    $ PICKUP="the counter" redrive kafka consume shop:consumer
"""

import json
import os

from redrive.sources.kafka import ExecutionConfig, KafkaConfig, ParallelConsumer, Record


async def ship(record: Record) -> None:
    order = json.loads(record.value)
    address = order["address"] or os.environ.get("PICKUP")
    if not address:
        raise ValueError("the order has no address")
    print(f"order {order['number']} goes to {address}", flush=True)


consumer = ParallelConsumer(
    ["orders"],
    ship,
    group="shipping",
    ordering="key_hash",  # records of one key run in their order, all others at the same time
    execution=ExecutionConfig(max_retries=2, retry_backoff_ms=100),
    kafka=KafkaConfig(bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")),
)
