"""What a test does to a broker from outside: topics, records, dead letters, committed offsets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from redrive.sources.kafka import ExecutionConfig, KafkaConfig, ParallelConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
_NUMBERS = count()
LIMIT = 300.0  # seconds until something is held to be stuck, on a machine that does much else
ASKING = 10.0  # seconds for one question to the broker
BRISK = {"heartbeat.interval.ms": 200}  # by its heartbeats a member hears of a rebalance; it does not expire any sooner


class Stage:
    """A topic, a group and the outside view of both."""

    def __init__(self, bootstrap: str, name: str, replicas: int = 1) -> None:
        self.bootstrap, self.replicas = bootstrap, replicas
        self.topic = f"{re.sub('[^a-z0-9_]+', '-', name.lower())[:120]}-{unique()}"
        self.group = f"group-of-{self.topic}"
        self.dlq = f"{self.topic}.dlq"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self._asker: Consumer | None = None

    def kafka(self, **settings: Any) -> KafkaConfig:
        quick = {"commit_interval_ms": 50}
        if not settings.get("exactly_once"):  # where it would do nothing, and be refused
            quick["dlq_flush_timeout_ms"] = 60_000  # one that is only late must not be written twice
        return KafkaConfig(bootstrap_servers=self.bootstrap, **{**quick, **settings})

    def consumer(self, worker: Any, **options: Any) -> ParallelConsumer:
        execution = {"retry_backoff_ms": 1, "retry_jitter_ms": 0, "process_count": 2, **options.pop("execution", {})}
        topics, tracing = options.pop("topics", [self.topic]), options.pop("tracing", None)
        ordering, group = options.pop("ordering", "key_hash"), options.pop("group", self.group)
        if options.get("group_protocol") != "consumer":  # there the broker says how often
            options["settings"] = BRISK | options.get("settings", {})
        return ParallelConsumer(
            topics, worker, group=group, ordering=ordering, execution=ExecutionConfig(**execution),
            kafka=self.kafka(**options), tracing=tracing,
        )  # fmt: skip

    # ------------------------------------------------------------------ topics and records

    def create(self, partitions: int = 1, *, topic: str = "", **config: str) -> None:
        name = topic or self.topic
        new = NewTopic(
            name, partitions, self.replicas, config={key.replace("_", "."): value for key, value in config.items()}
        )
        self.admin.create_topics([new])[name].result(LIMIT)
        self.await_topics(name)

    def await_topics(self, *names: str) -> None:
        """Return once the broker shows all of *names*: its controller says that they are made a little before."""
        end = time.monotonic() + LIMIT
        while not {*names} <= self.topics().keys():
            assert time.monotonic() < end, f"the broker does not show {names}"
            time.sleep(0.01)

    def topics(self) -> dict[str, Any]:
        """Return every topic that the broker knows, with what it says of it."""
        return patiently(lambda: self.admin.list_topics(timeout=ASKING)).topics

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
        name = topic or self.topic
        config = {"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.partition.eof": True, **settings}
        config["fetch.wait.max.ms"] = 10  # an end is told once the broker has waited for more
        with contextlib.closing(Consumer({**config, "enable.auto.commit": False})) as reader:
            ends = patiently(lambda: _ends(reader, name))
            reader.assign([TopicPartition(name, number, 0) for number in ends])
            messages = []
            while ends:
                message = reader.poll(LIMIT)
                assert message is not None, f"{name} cannot be read"
                if message.error() is None:
                    messages.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF and _is_end(message, ends):
                    del ends[message.partition()]
        return sorted(messages, key=lambda message: (message.partition(), message.offset()))

    def dead_letters(self) -> list[Any]:
        return self.read(self.dlq)

    def committed(self, partition: int = 0, *, topic: str = "") -> int | None:
        return self.commit_of(partition, topic=topic)[0]

    def commit_of(self, partition: int = 0, *, topic: str = "") -> tuple[int | None, str]:
        # Not by the admin client: its question for a group's offsets crashes librdkafka 2.16 while the broker starts.
        if self._asker is None:
            self._asker = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        place = patiently(lambda: _committed(self._asker, TopicPartition(topic or self.topic, partition)))
        return (None if place.offset < 0 else place.offset), place.metadata or ""

    def end(self, partition: int = 0) -> int:
        """Return where the log of a partition ends."""
        with contextlib.closing(Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reader"})) as reader:
            return patiently(lambda: _ends(reader, self.topic))[partition]

    def config_of(self, topic: str) -> dict[str, str]:
        """Return the settings of *topic*."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = self.admin.describe_configs([resource], request_timeout=ASKING)[resource].result(LIMIT)
        return {name: entry.value for name, entry in found.items()}

    def members(self) -> int:
        """Return how many members the group has, as its coordinator says."""
        asked = self.admin.describe_consumer_groups([self.group], request_timeout=ASKING)
        return len(patiently(lambda: asked[self.group].result(LIMIT)).members)

    def clear(self, *names: str) -> None:
        """Delete the topics of this stage, and those with one of *names*: many times a second a broker looks at all."""
        mine = [topic for topic in self.topics() if any(name in topic for name in (self.topic, *names))]
        for deleted in self.admin.delete_topics(mine).values() if mine else ():
            deleted.exception(LIMIT)  # one that may not be deleted stays

    def close(self) -> None:
        if self._asker is not None:
            self._asker.close()


def unique() -> str:
    """Return an end for names on a broker that other processes use too."""
    return f"{os.getpid()}-{next(_NUMBERS)}"


def _ends(reader: Consumer, name: str) -> dict[int, int]:
    """
    Return where each partition of *name* ends, as its leader says.

    Not where the client first sees an end: a new leader shows less than was confirmed until it has heard
    from its followers, and only to this question it then answers that it does not know.
    """
    topic = reader.list_topics(name, ASKING).topics[name]
    if topic.error is not None:  # to a node that has only just started it is unknown, and has no partitions
        raise KafkaException(topic.error)
    places = [TopicPartition(name, number) for number in topic.partitions]
    return {place.partition: reader.get_watermark_offsets(place, ASKING)[1] for place in places}


def _is_end(message: Message, ends: dict[int, int]) -> bool:
    number = message.partition()
    return number in ends and message.offset() >= ends[number]


def _committed(asker: Consumer, asked: TopicPartition) -> TopicPartition:
    [place] = asker.committed([asked], ASKING)
    if place.error is not None:
        raise KafkaException(place.error)
    return place


def patiently(ask: Callable[[], T]) -> T:
    """Return what the broker answers to *ask*; one that starts, or whose leader is away, is asked again."""
    end = time.monotonic() + LIMIT
    while True:
        try:
            return ask()
        except KafkaException:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


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
