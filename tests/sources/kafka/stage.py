"""What a test does to a broker from outside: topics, records, dead letters, committed offsets."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from redrive.sources.kafka import ExecutionConfig, KafkaConfig, ParallelConsumer

if TYPE_CHECKING:
    from collections.abc import Iterable

_NUMBERS = count()
LIMIT = 30.0


class Stage:
    """A topic, a group and the outside view of both."""

    def __init__(self, bootstrap: str, name: str, replicas: int = 1) -> None:
        self.bootstrap, self.replicas = bootstrap, replicas
        self.topic = f"{re.sub('[^a-z0-9_]+', '-', name.lower())[:120]}-{next(_NUMBERS)}"
        self.group = f"group-of-{self.topic}"
        self.dlq = f"{self.topic}.dlq"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self._asker: Consumer | None = None

    def kafka(self, **settings: Any) -> KafkaConfig:
        quick = {"commit_interval_ms": 50, "dlq_flush_timeout_ms": 1500}
        return KafkaConfig(bootstrap_servers=self.bootstrap, **{**quick, **settings})

    def consumer(self, worker: Any, **options: Any) -> ParallelConsumer:
        execution = {"retry_backoff_ms": 1, "retry_jitter_ms": 0, "process_count": 2, **options.pop("execution", {})}
        topics = options.pop("topics", [self.topic])
        ordering, group = options.pop("ordering", "key_hash"), options.pop("group", self.group)
        return ParallelConsumer(
            topics, worker, group=group, ordering=ordering, execution=ExecutionConfig(**execution),
            kafka=self.kafka(**options),
        )  # fmt: skip

    # ------------------------------------------------------------------ topics and records

    def create(self, partitions: int = 1, *, topic: str = "", **config: str) -> None:
        name = topic or self.topic
        new = NewTopic(
            name, partitions, self.replicas, config={key.replace("_", "."): value for key, value in config.items()}
        )
        self.admin.create_topics([new])[name].result(LIMIT)

    def produce(self, records: Iterable[dict[str, Any]], *, topic: str = "", **settings: Any) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, **settings})
        refused: list[Any] = []
        for record in records:
            producer.produce(
                topic or self.topic, on_delivery=lambda error, _: error and refused.append(error), **record
            )
            producer.poll(0)
        assert producer.flush(LIMIT) == 0
        assert not refused

    def read(self, topic: str = "", **settings: Any) -> list[Any]:
        """Return every message of *topic*, in the order of its partitions."""
        config = {"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.partition.eof": True, **settings}
        reader = Consumer({**config, "enable.auto.commit": False})
        name = topic or self.topic
        partitions = list(reader.list_topics(name, LIMIT).topics[name].partitions)
        reader.assign([TopicPartition(name, number, 0) for number in partitions])
        messages, ended = [], 0
        while ended < len(partitions):
            message = reader.poll(LIMIT)
            assert message is not None, f"{name} cannot be read"
            if message.error() is None:
                messages.append(message)
            else:
                ended += message.error().code() == KafkaError._PARTITION_EOF
        reader.close()
        return sorted(messages, key=lambda message: (message.partition(), message.offset()))

    def dead_letters(self) -> list[Any]:
        return self.read(self.dlq)

    def committed(self, partition: int = 0, *, topic: str = "") -> int | None:
        return self.commit_of(partition, topic=topic)[0]

    def commit_of(self, partition: int = 0, *, topic: str = "") -> tuple[int | None, str]:
        # Not by the admin client: its question for a group's offsets crashes librdkafka 2.16 while the broker starts.
        if self._asker is None:
            self._asker = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        try:
            [place] = self._asker.committed([TopicPartition(topic or self.topic, partition)], LIMIT)
        except KafkaException as error:
            if "oordinator" not in error.args[0].str():  # the broker is only just starting
                raise
            return None, ""
        return (None if place.offset < 0 else place.offset), place.metadata or ""

    def close(self) -> None:
        if self._asker is not None:
            self._asker.close()


@contextlib.asynccontextmanager
async def running(consumer: ParallelConsumer):
    """Run *consumer* meanwhile, and stop it as its user would."""
    task = asyncio.create_task(consumer.run())
    try:
        yield task
    finally:
        consumer.stop()
        await asyncio.wait_for(task, LIMIT)


async def until(condition: Any, limit: float = LIMIT) -> None:
    """Wait until *condition* holds; what it looks at is outside of this process, so it has to be asked."""
    end = time.monotonic() + limit
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < end, f"not within {limit} s: {condition}"
        await asyncio.sleep(0.02)
