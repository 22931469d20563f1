"""
Dead-letter topics.

Owns their creation, with as many partitions as their source, and the refusal of one that
would lose dead letters. Blocks; called before consuming and when a topic is new to us.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are its public names
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
)

from redrive.errors import SourceError
from redrive.sources.kafka.config import topic_problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.sources.kafka.config import KafkaConfig

_log = logging.getLogger("redrive.kafka")
_LIMIT = 15.0  # seconds for one request
_AWAY = frozenset({
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - the client's own names
    KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_CONTROLLER, KafkaError.BROKER_NOT_AVAILABLE,
})  # fmt: skip
_ROOM = 65_536  # bytes that our headers may add to the largest record


class BrokerAway(SourceError):
    """The broker gave no answer; it may later."""


class DeadLetterTopics:
    """Which dead-letter topics exist, and how many partitions they have."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._admin = AdminClient(config.client_settings())
        self._partitions: dict[str, int] = {}
        self._unprepared: set[str] = set()  # sources that came while the broker was away
        self.missing: set[str] = set()  # those that nobody has made

    def partitions(self, topic: str) -> int:
        """Return how many partitions the dead-letter topic *topic* has, 0 if that is not known."""
        return self._partitions.get(topic, 0)

    @property
    def awaited(self) -> set[str]:
        """The dead-letter topics that will be asked for again, because the broker was away."""
        return {self._config.dlq_topic(source) for source in self._unprepared}

    @property
    def lacking(self) -> set[str]:
        """The dead-letter topics that are not there, as far as we know."""
        return self.missing | self.awaited

    def prepare(self, sources: Iterable[str]) -> None:
        """
        Make sure that the dead letters of *sources* have a topic each.

        Raise SourceError if one cannot be made, or is compacted: a compacted topic keeps one
        dead letter per key and refuses those without.
        """
        wanted = [topic for topic in sources if self._config.dlq_topic(topic) not in self._partitions]
        if not wanted:
            return
        known = self._list()
        for source in wanted:
            if source in known:
                self._prepare(source, known)

    def prepare_in_time(self, sources: Iterable[str] = ()) -> None:
        """Make sure likewise; if the broker is away now, the next call tries those again."""
        self._unprepared.update(sources)
        try:
            self.prepare(self._unprepared)
        except BrokerAway as error:
            _log.warning("the dead-letter topics of %s are asked for again: %s", sorted(self._unprepared), error)
        else:
            self._unprepared.clear()

    def _prepare(self, source: str, known: dict[str, Any]) -> None:
        name = self._config.dlq_topic(source)
        if problem := topic_problem(name):
            raise SourceError(f"the dead letters of {source!r} cannot have a topic: {problem}")
        if name not in known:
            if not self._config.dlq_create_topics:
                self.missing.add(name)
                return
            self._create(name, source, known[source])
            self._partitions[name] = len(known[source].partitions)
        else:
            self._check(name)
            self._partitions[name] = len(known[name].partitions)
        self.missing.discard(name)
        if self._config.dlq_park_keys:
            self._prepare_parked(f"{name}.parked", known, known[source])

    def _prepare_parked(self, name: str, known: dict[str, Any], source: Any) -> None:
        """Make sure that it is known which keys are parked: one record for each, kept until it is released."""
        if name not in known:
            self._make(name, source, {"cleanup.policy": "compact"})
        self._partitions[name] = len(known.get(name, source).partitions)

    def _list(self) -> dict[str, Any]:
        try:
            topics = self._admin.list_topics(timeout=_LIMIT).topics
        except KafkaException as error:
            raise _kind(error)(f"the broker's topics cannot be listed: {error.args[0].str()}") from None
        return {name: topic for name, topic in topics.items() if topic.error is None}

    def _create(self, name: str, source: str, metadata: Any) -> None:
        largest = int(self._configs(source).get("max.message.bytes", 1_048_588))
        settings = {
            "cleanup.policy": "delete",
            "retention.ms": str(self._config.dlq_retention_ms),
            "max.message.bytes": str(largest + _ROOM),
        }
        self._make(name, metadata, settings)

    def _make(self, name: str, source: Any, settings: dict[str, str]) -> None:
        replicas = max(len(each.replicas) for each in source.partitions.values())
        topic = NewTopic(
            name, num_partitions=len(source.partitions), replication_factor=replicas, config=settings
        )  # fmt: skip
        try:
            self._admin.create_topics([topic], request_timeout=_LIMIT)[name].result(_LIMIT)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # somebody was quicker
                raise _kind(error)(
                    f"the dead-letter topic {name!r} does not exist and cannot be created ({error.args[0].str()}); "
                    "create it, allow this client to, or set dlq_enabled=False"
                ) from None

    def _check(self, name: str) -> None:
        if "compact" in self._configs(name).get("cleanup.policy", "delete"):
            raise SourceError(
                f"the dead-letter topic {name!r} is compacted and would keep one dead letter per key; "
                "set its cleanup.policy to delete"
            )
        if not self._may_write(name):
            raise SourceError(
                f"this client may not write to the dead-letter topic {name!r}; allow it to, or set dlq_enabled=False"
            )

    def _may_write(self, name: str) -> bool:
        """Ask now, not at the first dead letter; a broker that does not say is taken to allow it."""
        try:
            asked = self._admin.describe_topics(
                TopicCollection([name]), include_authorized_operations=True, request_timeout=_LIMIT
            )
            allowed = asked[name].result(_LIMIT).authorized_operations
        except KafkaException:  # it need not be allowed to look
            return True
        return not allowed or AclOperation.WRITE in allowed

    def _configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            found = self._admin.describe_configs([resource], request_timeout=_LIMIT)[resource].result(_LIMIT)
        except KafkaException:  # it need not be allowed to look
            return {}
        return {name: str(entry.value) for name, entry in found.items() if entry.value is not None}


def _kind(error: KafkaException) -> type[SourceError]:
    return BrokerAway if error.args[0].code() in _AWAY else SourceError


def refuse_loops(config: KafkaConfig, topics: set[str]) -> None:
    """Raise SourceError if a consumer of *topics* would consume the dead letters that it writes."""
    loops = {topic for topic in topics if config.dlq_enabled and config.dlq_topic(topic) in topics}
    if loops:
        raise SourceError(
            f"this consumer would consume the dead letters that it writes ({', '.join(sorted(loops))}); "
            "leave dead-letter topics out of its topics"
        )
