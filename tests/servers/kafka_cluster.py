"""
Three real Kafka brokers on loopback, of which one may fail.

Owns how nodes make one cluster: each is broker and voter, every topic has three replicas of
which two must have a record, internal ones too. One node is `Broker`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.servers.kafka import Broker

_SAFE = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
}


class Cluster:
    """Three nodes; use it as a context manager."""

    def __init__(self, nodes: int = 3) -> None:
        self.brokers = [Broker(node, **_SAFE) for node in range(1, nodes + 1)]
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers)

    def __enter__(self) -> Self:
        voters = ",".join(f"{broker.node}@127.0.0.1:{broker.controller}" for broker in self.brokers)
        try:
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda broker: broker.format(voters), self.brokers))
            for broker in self.brokers:  # not by the pool: they would die with its threads
                broker.launch()
            for broker in self.brokers:
                broker.wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def leader(self, topic: str, partition: int = 0) -> Broker | None:
        """Return the node that leads *partition* of *topic* now, as far as the others know."""
        with suppress(KafkaException):
            metadata = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(topic, timeout=5)
            known = metadata.topics[topic].partitions.get(partition)
            return next((each for each in self.brokers if known is not None and each.node == known.leader), None)
        return None

    def is_whole(self) -> bool:
        """Whether every node has all that there is."""
        with suppress(KafkaException):
            topics = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=5).topics
            parts = [part for topic in topics.values() for part in topic.partitions.values()]
            return bool(parts) and all(len(part.isrs) == len(self.brokers) for part in parts)
        return False

    def close(self) -> None:
        """End all of them and remove their data."""
        with ExitStack() as ends:
            for broker in self.brokers:
                ends.callback(broker.close)
