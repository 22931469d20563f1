"""
Topics for the Kafka benchmark, and what the broker says of them.

Owns filled topics, producing at a pace, committed offsets as the broker has them, and the
ids in a dead-letter topic. Knows no contender.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.fresh import ROOT, environment
from benchmarks.letters import KIND, PAYLOAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITIONS = 8
KEYS = 100
_ASKS = 20


def body(i: int, **more: Any) -> bytes:
    """Return record number *i*: a JSON object of exactly PAYLOAD_BYTES bytes."""
    content = {"i": i, "type": KIND, **more, "body": ""}
    room = PAYLOAD_BYTES - len(json.dumps(content, separators=(",", ":")))
    return json.dumps({**content, "body": "x" * room}, separators=(",", ":")).encode()


def key(i: int) -> bytes:
    """Return the key of record number *i*."""
    return b"k%d" % (i % KEYS)


def fails(i: int, percent: int) -> bool:
    """Whether record *i* is one of the *percent* that fail every try; they are spread over all keys."""
    return zlib.crc32(b"%d" % i) % 100 < percent


def create(bootstrap: str, name: str, partitions: int = PARTITIONS) -> None:
    """Make a topic and wait until the broker knows it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
    end = time.monotonic() + 10
    while name not in admin.list_topics(timeout=5).topics and time.monotonic() < end:
        time.sleep(0.02)


def delete(bootstrap: str, name: str) -> None:
    """Remove a topic, and with it what it takes on the disk."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must live until it has its answer
    admin.delete_topics([name])[name].result()


def filled(bootstrap: str, name: str, n: int, partitions: int = PARTITIONS) -> str:
    """Make a topic that holds records 0 to *n*, every one confirmed."""
    create(bootstrap, name, partitions)
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 20, "acks": "all", "queue.buffering.max.messages": 200_000,
    })  # fmt: skip
    for i in range(n):
        _put(producer, name, key(i), body(i))
    producer.flush()
    assert sum(ends(bootstrap, name).values()) == n
    return name


def offered(bootstrap: str, topic: str, n: int) -> Producer:
    """Put records 0 to *n* into *topic* in a transaction; whoever commits it lets everybody see them."""
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 200_000,
        "transactional.id": topic, "transaction.timeout.ms": 120_000,
    })  # fmt: skip
    producer.init_transactions(30)
    producer.begin_transaction()
    for i in range(n):
        _put(producer, topic, key(i), body(i))
    producer.flush()
    return producer


def _put(producer: Producer, topic: str, key_: bytes, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, key=key_, value=value)
        except BufferError:
            producer.poll(0.05)
        else:
            break


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Return where each partition ends, with what is not committed yet."""
    with _reader(bootstrap, "ends", {"isolation.level": "read_uncommitted"}) as consumer:
        numbers = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in numbers}


def ids_in(bootstrap: str, topic: str) -> list[int]:
    """Return the ids of all records of *topic*, as often as they are there."""
    return [json.loads(value)["i"] for value in values_in(bootstrap, topic) if value is not None]


def values_in(bootstrap: str, topic: str) -> list[bytes | None]:
    """Return the values of all records of *topic*."""
    wanted = ends(bootstrap, topic)
    with _reader(bootstrap, f"ids-{time.time_ns()}") as consumer:
        consumer.assign([TopicPartition(topic, p, 0) for p in wanted])
        found: list[bytes | None] = []
        end = time.monotonic() + 30
        while len(found) < sum(wanted.values()) and time.monotonic() < end:
            messages: list[Any] = consumer.consume(1000, 1.0)
            found += [message.value() for message in messages if message.error() is None]
    return found


@contextlib.contextmanager
def _reader(bootstrap: str, group: str, more: dict[str, str] | None = None) -> Iterator[Consumer]:
    own = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**own, **(more or {})})
    try:
        yield consumer
    finally:
        consumer.close()


class Committed:
    """Asks the broker what a group has committed, without joining it."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int = PARTITIONS) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        self._places = [TopicPartition(topic, p) for p in range(partitions)]

    def places(self) -> list[TopicPartition]:
        """Return offsets and metadata."""
        for _ in range(_ASKS):
            with contextlib.suppress(KafkaException):  # the coordinator is still being elected
                return self._consumer.committed(self._places, timeout=10)
            time.sleep(0.25)
        raise AssertionError("the broker does not say what was committed")

    def total(self) -> int:
        """Return how many records were committed."""
        return sum(max(place.offset, 0) for place in self.places())


# ---------------------------------------------------------------------- at a pace


def begin_producing(bootstrap: str, topic: str, n: int, rate: int) -> subprocess.Popen[bytes]:
    """Produce *n* records, *rate* a second, each with the instant it was sent, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.kafka_topics", bootstrap, topic, str(n), str(rate)]
    return subprocess.Popen(command, cwd=ROOT, env=environment())


def _produce_paced(bootstrap: str, topic: str, n: int, rate: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    began = time.perf_counter()
    for i in range(n):
        ahead = i / rate - (time.perf_counter() - began)
        if ahead > 0:
            time.sleep(ahead)
        producer.produce(topic, key=key(i), value=body(i, at=time.time_ns()))
        producer.poll(0)
    producer.flush()


if __name__ == "__main__":
    _produce_paced(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
