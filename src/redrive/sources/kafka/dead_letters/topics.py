"""
Dead-letter topics.

Owns their creation, with as many partitions as their source, and the refusal of one that would lose dead letters or
that this client may not write to. `prepare` blocks and is called before consuming. Later, for a new topic or one that
refuses dead letters, a thread asks the broker, and the control thread takes the answer in. Knows no dead letter.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are its public names
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
)

from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.sources.kafka.client.errors import said
from redrive.sources.kafka.config_checks import topic_problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig

_log = logging.getLogger("redrive.kafka")
_LIMIT = 15.0  # seconds for one request
_LATE = 5.0  # seconds that the client may be late to report a timeout
_T = TypeVar("_T")
_AWAY = frozenset({
    KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - the client's own names
    KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_CONTROLLER, KafkaError.BROKER_NOT_AVAILABLE,
})  # fmt: skip
_UNBORN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})
_BIRTH = 10.0  # seconds within which every node knows a new topic
_AGAIN = 0.05  # seconds between two requests
_IDENTITY = ("sasl.", "ssl.", "security.", "oauth")  # prefixes of the settings that identify a client
_ROOM = 65_536  # bytes that our headers may add to the largest record


class _Purpose(NamedTuple):
    """What a topic is for, and the setting that does without it."""

    topic: str
    without: str


_DEAD_LETTERS = _Purpose("dead-letter topic", "dlq_enabled=False")
_PARKED_KEYS = _Purpose("topic of parked keys", "dlq_park_keys=False")


class BrokerAway(SourceError):
    """The broker did not answer; it may later."""


class DeadLetterTopics:
    """Which dead-letter topics exist, and how many partitions they have."""

    def __init__(self, config: KafkaConfig, clock: Clock | None = None) -> None:
        self._config, self._clock = config, clock or SystemClock()
        settings = config.client_settings("producer")
        self._admin = AdminClient(settings)
        own = {name: value for name, value in config.producer_settings.items() if name.startswith(_IDENTITY)}
        self._writer = (
            AdminClient({**settings, **own}) if own else self._admin
        )  # the producer's identity needs the rights
        self._partitions: dict[str, int] = {}
        self._unprepared: set[str] = set()  # sources whose dead-letter topics are not known yet
        self._doubted: set[str] = set()  # sources whose dead letters were refused
        self._asking: tuple[set[str], Future[None]] | None = None
        self.missing: set[str] = set()  # topics that do not exist

    def partitions(self, topic: str) -> int:
        """Return how many partitions the dead-letter topic *topic* has, 0 if unknown."""
        return self._partitions.get(topic, 0)

    @property
    def awaited(self) -> set[str]:
        """The dead-letter topics about which the broker has not answered yet."""
        return {self._config.dlq_topic(source) for source in self._unprepared}

    def reasons(self) -> list[str]:
        """Return what operators must know of topics that this client does not see, with the way out."""
        reasons = []
        if self.missing:
            way = "create it, allow this client to see it and to write to it, or set dlq_create_topics=True"
            reasons.append(f"no such topic that this client may see: {', '.join(sorted(self.missing))}; {way}")
        if awaited := self.awaited:
            reasons.append(f"the broker has not answered yet whether {', '.join(sorted(awaited))} exists")
        return reasons

    def prepare(self, sources: Iterable[str]) -> None:
        """
        Make sure that the dead letters of *sources* have a topic each.

        Raise SourceError if one cannot be created, may not be written to, or is compacted: a compacted topic keeps
        one dead letter per key and refuses those without a key.
        """
        wanted = [topic for topic in sources if self._config.dlq_topic(topic) not in self._partitions]
        if wanted:
            self._prepare_all(wanted)

    def _prepare_all(self, wanted: Iterable[str]) -> None:
        known = self._list()
        for source in wanted:
            if source in known:
                self._prepare(source, known)

    def prepare_in_time(self, sources: Iterable[str] = ()) -> None:
        """
        Do the same without waiting for the broker; later calls take the answer in.

        They ask again while the broker is away. Raise SourceError as `prepare` does.
        """
        self._unprepared |= {each for each in sources if self._config.dlq_topic(each) not in self._partitions}
        if self._asking is None and (wanted := self._unprepared | self._doubted):
            self._asking = wanted, Future()
            threading.Thread(target=self._ask, args=self._asking, name="redrive-dlq-topics", daemon=True).start()
        elif self._asking is not None and self._asking[1].done():
            asked, answer = self._asking
            self._asking = None
            self._take_in(asked, answer)

    def doubt(self, source: str) -> None:
        """Ask for the dead-letter topic of *source* again: it refuses dead letters, and may have been deleted."""
        self._doubted.add(source)

    def taken(self, topic: str) -> None:
        """Note that the dead-letter topic *topic* takes dead letters."""
        self.missing.discard(topic)

    def _ask(self, sources: set[str], answer: Future[None]) -> None:
        try:
            self._prepare_all(sources)
        except BaseException as error:  # noqa: BLE001 - the control thread raises it
            answer.set_exception(error)
        else:
            answer.set_result(None)

    def _take_in(self, asked: set[str], answer: Future[None]) -> None:
        try:
            answer.result()
        except BrokerAway as error:
            _log.warning("cannot check the dead-letter topics of %s yet, will retry: %s", sorted(asked), error)
            return
        except SourceError as error:
            if asked & self._unprepared:
                raise
            _log.error("the broker refuses dead letters of %s: %s", sorted(asked), error)
        self._unprepared -= asked
        self._doubted -= asked

    def _prepare(self, source: str, known: dict[str, Any]) -> None:
        name = self._config.dlq_topic(source)
        if problem := topic_problem(name):
            raise SourceError(f"cannot name the dead-letter topic of {source!r}: {problem}")
        if name not in known:
            if not self._config.dlq_create_topics:
                self.missing.add(name)
                return
            self._create(name, source, known[source])
        partitions = self._check(name)
        if self._config.dlq_park_keys:
            self._prepare_parked(f"{name}.parked", known, known[source])
        self._partitions[name] = partitions or len(known.get(name, known[source]).partitions)
        self.missing.discard(name)

    def _prepare_parked(self, name: str, known: dict[str, Any], source: Any) -> None:
        """Make sure that there is a topic of parked keys, which keeps one record for each until it is unparked."""
        if name not in known and not self._config.dlq_create_topics:
            raise SourceError(
                f"cannot see the topic of parked keys {name!r}; create it with "
                "cleanup.policy=compact, or set dlq_create_topics=True or dlq_park_keys=False"
            )
        if name not in known:
            self._make(name, source, {"cleanup.policy": "compact"}, _PARKED_KEYS)
        partitions = self._writable(name, _PARKED_KEYS)
        if self._configs(name).get("cleanup.policy", "compact") != "compact":
            raise SourceError(
                f"the topic of parked keys {name!r} is not compacted and would forget keys that are parked; "
                "set its cleanup.policy to compact"
            )
        self._partitions[name] = partitions or len(known.get(name, source).partitions)

    def _list(self) -> dict[str, Any]:
        try:
            topics = self._admin.list_topics(timeout=_LIMIT).topics
        except KafkaException as error:
            raise _kind(error)(f"cannot list the broker's topics: {said(error.args[0], self._config)}") from None
        return {name: topic for name, topic in topics.items() if topic.error is None}

    def _create(self, name: str, source: str, metadata: Any) -> None:
        largest = int(self._configs(source).get("max.message.bytes", 1_048_588))
        settings = {
            "cleanup.policy": "delete",
            "retention.ms": str(self._config.dlq_retention_ms),
            "max.message.bytes": str(largest + _ROOM),
        }
        self._make(name, metadata, settings, _DEAD_LETTERS)

    def _make(self, name: str, source: Any, settings: dict[str, str], purpose: _Purpose) -> None:
        replicas = max(len(each.replicas) for each in source.partitions.values())
        topic = NewTopic(
            name, num_partitions=len(source.partitions), replication_factor=replicas, config=settings
        )  # fmt: skip
        try:
            _answer(self._admin.create_topics([topic], request_timeout=_LIMIT)[name])
        except KafkaException as error:
            if (
                error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS
            ):  # another client was quicker, or this one may not see it
                raise _kind(error)(
                    f"this client sees no {purpose.topic} {name!r} and cannot create it "
                    f"({error.args[0].str()}); create it, allow this client to create it, or to see it and to write "
                    f"to it, or set {purpose.without}"
                ) from None

    def _check(self, name: str) -> int:
        """Return how many partitions *name* has, 0 if the broker does not tell; raise SourceError if it is unfit."""
        partitions = self._writable(name, _DEAD_LETTERS)
        if "compact" in self._configs(name).get("cleanup.policy", "delete"):
            raise SourceError(
                f"the dead-letter topic {name!r} is compacted and would keep one dead letter per key; "
                "set its cleanup.policy to delete"
            )
        return partitions

    def _writable(self, name: str, purpose: _Purpose) -> int:
        """Check the right to write now, not at the first dead letter; no answer counts as allowed."""
        try:
            found = self._describe(name)
        except KafkaException as error:
            _unless_away(error, name)
            partitions = 0  # a client that may not see a topic cannot write to it: it does not learn its leaders
            is_allowed = error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED
        else:
            partitions, allowed = len(found.partitions), found.authorized_operations
            is_allowed = not allowed or AclOperation.WRITE in allowed
        if not is_allowed:
            raise SourceError(
                f"this client may not write to the {purpose.topic} {name!r}; allow it to, or set {purpose.without}"
            )
        return partitions

    def _describe(self, name: str) -> Any:
        """Return the description of *name*; a node may not know a new topic at once."""
        end = self._clock.monotonic() + _BIRTH
        while True:
            asked = self._writer.describe_topics(
                TopicCollection([name]), include_authorized_operations=True, request_timeout=_LIMIT
            )
            try:
                return _answer(asked[name])
            except KafkaException as error:
                if error.args[0].code() not in _UNBORN or self._clock.monotonic() >= end:
                    raise
            self._clock.block(_AGAIN)

    def _configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            found = _answer(self._admin.describe_configs([resource], request_timeout=_LIMIT)[resource])
        except KafkaException as error:
            _unless_away(error, topic)  # this client needs no right to read configurations
            return {}
        return {name: str(entry.value) for name, entry in found.items() if entry.value is not None}


def topic_id(admin: AdminClient, topic: str, config: KafkaConfig, limit: float) -> str:
    """Return the id of *topic*, which changes when it is deleted and created again; raise SourceError."""
    try:
        asked = admin.describe_topics(TopicCollection([topic]), request_timeout=limit)
        return str(_answer(asked[topic], limit).topic_id)
    except KafkaException as error:
        why = said(error.args[0], config)
        raise _kind(error)(f"cannot collect {topic!r}, because its id cannot be read: {why}") from None


def _answer(asked: Future[_T], limit: float = _LIMIT) -> _T:
    """Return the broker's answer; the client reports a timeout itself, a little late."""
    try:
        return asked.result(limit + _LATE)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001 - the client's own name


def _unless_away(error: KafkaException, topic: str) -> None:
    if _kind(error) is BrokerAway:
        raise BrokerAway(f"cannot read the settings of {topic!r}: {error.args[0].str()}") from None


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
