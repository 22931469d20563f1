"""
The collector of dead letters.

Owns the way of a dead letter from its topic, whichever program wrote it, to a failed letter in the store: read, put,
and only then committed under the collector's own group. A record that is read again is the same letter, because its
topic's id, partition and offset are its idempotency key. While the store or the broker is away, nothing is committed
and nothing is lost. Decides nothing about the letters.
"""

from __future__ import annotations

import asyncio
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from redrive.engine.clock import SystemClock, new_id
from redrive.errors import QueueFull, SourceError, StoreUnavailable
from redrive.failpoints import hit
from redrive.sources.kafka import facts
from redrive.sources.kafka.client.errors import is_final, said
from redrive.sources.kafka.client.outage import Outage
from redrive.sources.kafka.client.positions import begin, committed, start_of
from redrive.sources.kafka.client.settings import is_cooperative
from redrive.sources.kafka.collect.convert import KIND, FoundRecord, draft_of
from redrive.sources.kafka.dead_letters.codec import codec_of
from redrive.sources.kafka.dead_letters.dialects import read_account
from redrive.sources.kafka.dead_letters.topics import BrokerAway, topic_id
from redrive.sources.kafka.records.dead_letter import MessageParts
from redrive.sources.kafka.records.messages import headers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redrive.core.letter import Draft
    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.stores.contract import Store

_log = logging.getLogger("redrive.kafka")
_BATCH = 500
_REQUEST = 15.0  # seconds
_GLANCE = 0.2  # seconds that one poll may wait
_AWAY = 1.0  # seconds between two tries while the store or the broker is away
_NEW_TOPICS_MS = 10_000  # how often the client looks for new topics that match a pattern
_RESET = "earliest"  # where a new group begins


class Collector:
    """
    Puts the dead letters of *topics* (names or globs such as `*.dlq`) into *store* as failed letters.

    Letters from topic `orders` have the kind `kafka.orders`, in *queue*, and the origin
    `kafka:orders/partition@offset` that their headers name, unless *draft* makes a letter of a record and an id in
    another way. Several collectors of one *group* share the topics.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topics: Sequence[str],
        store: Store,
        *,
        group: str = "redrive-collect",
        queue: str = KIND,
        draft: Callable[[FoundRecord, str], Draft] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._made = draft or self._kafka_draft
        self._config, self._topics, self._store = config, [_pattern(topic) for topic in topics], store
        self._group, self._queue, self._clock = group, queue, clock or SystemClock()
        self._outage, self._codec = Outage(config, self._clock), codec_of(config)
        self._admin = AdminClient(config.client_settings("producer"))
        self._ids: dict[str, str] = {}  # of topics
        self._last: dict[tuple[str, int], int] = {}  # offsets that were read last
        self._early: list[Any] = []  # messages read while the store was away
        self._thread = ThreadPoolExecutor(1, "redrive-collect")  # one: the client must not be closed during a call
        self._ended: set[tuple[str, int]] = set()  # partitions that were read up to their end
        self._stopping = False
        self.collected = 0  # letters that are new
        self.known = 0  # letters that were kept before

    def stop(self) -> None:
        """Let `run` end after the current batch is stored and committed."""
        self._stopping = True

    async def run(self, *, until_end: bool = False) -> None:
        """Collect until stopped or, with *until_end*, until every topic is read; raise SourceError if that fails."""
        consumer = self._connect()
        facts.tell(facts.ConsumerStarted(group=self._group, topics=tuple(self._topics)))
        try:
            self._subscribe(consumer)
            if until_end and not await self._blocking(self._found, consumer):
                return
            while not self._stopping and not (until_end and self._is_at_end(consumer)):
                await self._blocking(self._outage.look, consumer)
                messages = await self._blocking(consumer.consume, _BATCH, _GLANCE)
                early, self._early = self._early, []
                batch = [message for message in [*early, *messages] if self._is_record(message)]
                if batch:
                    await self._keep(consumer, batch)
        finally:
            await self._blocking(consumer.close)
            facts.tell(facts.ConsumerStopped(group=self._group, why="stopped", processed=self.collected + self.known))

    # ------------------------------------------------------------------ one batch

    async def _keep(self, consumer: Consumer, batch: list[Any]) -> None:
        drafts = []
        for message in batch:
            if (its_id := await self._id_of(consumer, message)) is None:
                return
            drafts.append(self._draft(message, its_id))
        while True:
            try:
                receipts = await self._store.put(drafts)
                break
            except (StoreUnavailable, QueueFull) as error:
                _log.warning("the store does not take %d dead letters, will retry: %s", len(drafts), error)
                await self._stay(consumer)
                if self._stopping:
                    return
        hit("kafka.after_collect")
        new = sum(not receipt.duplicate for receipt in receipts)
        self.collected, self.known = self.collected + new, self.known + len(receipts) - new
        await self._blocking(self._commit, consumer, batch)

    async def _id_of(self, consumer: Consumer, message: Any) -> str | None:
        """Return the id of its topic, however long the broker takes to answer; None if the collector is stopped."""
        topic = message.topic()
        self._note((topic, message.partition()), message.offset())
        while topic not in self._ids and not self._stopping:
            try:
                self._ids[topic] = await self._blocking(topic_id, self._admin, topic, self._config, _REQUEST)
            except BrokerAway as error:
                _log.warning("cannot collect dead letters of %s yet, will retry: %s", topic, error)
                await self._stay(consumer)
        return self._ids.get(topic)

    def _draft(self, message: Any, its_id: str) -> Draft:
        topic = message.topic()
        key, value, headers = self._codec.decode(
            MessageParts(message.key(), message.value(), list(headers_of(message)))
        )
        found = FoundRecord(
            topic=topic,
            topic_id=its_id,
            partition=message.partition(),
            offset=message.offset(),
            key=key,
            value=value,
            headers=tuple(headers),
            timestamp=message.timestamp()[1],
        )
        return self._made(found, new_id())

    def _kafka_draft(self, found: FoundRecord, letter_id: str) -> Draft:
        home = self._config.source_topic(found.topic)
        account, folder = read_account(found.headers, home=home), self._config.dlq_spill_folder
        return draft_of(found, account, letter_id, queue=self._queue, folder=folder)

    async def _stay(self, consumer: Consumer) -> None:
        """Wait for the store or the broker without leaving the group: keep polling, with all partitions paused."""
        consumer.pause(await self._blocking(consumer.assignment))
        message = await self._blocking(consumer.poll, 0)
        if message is not None:  # of a partition that was assigned just now; its position has moved on
            self._early.append(message)
        await self._clock.sleep(_AWAY)
        consumer.resume(await self._blocking(consumer.assignment))

    def _commit(self, consumer: Consumer, batch: list[Any]) -> None:
        after = {(message.topic(), message.partition()): message.offset() + 1 for message in batch}
        places = [TopicPartition(topic, number, offset) for (topic, number), offset in after.items()]
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:  # they are stored; reading them again finds duplicates
            _log.warning("cannot commit collected offsets, so they will be read again: %s", error.args[0].str())

    # ------------------------------------------------------------------ the client

    async def _blocking(self, call: Callable[..., Any], *words: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *words)

    def _connect(self) -> Consumer:
        return Consumer(self._settings())

    def _settings(self) -> dict[str, Any]:
        return {
            "topic.metadata.refresh.interval.ms": _NEW_TOPICS_MS,
            "error_cb": self._outage,
            **self._config.client_settings("consumer"),
            **self._config.consumer_settings,
            "group.id": self._group,
            "auto.offset.reset": _RESET,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
        }

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Begin at the committed offsets; the client's own request for them may never be answered."""
        found = committed(consumer, places, self._clock, lambda: self._stopping)
        starts = [start_of(place, _RESET) for place in found]
        settings = self._settings()
        strategy = {} if settings.get("group.protocol") == "consumer" else {"partition.assignment.strategy": "range"}
        begin(consumer, starts, cooperative=is_cooperative(strategy | settings))
        facts.tell_assigned(self._group, places, len(consumer.assignment()))

    def _subscribe(self, consumer: Consumer) -> None:
        try:
            consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        except KafkaException as error:
            raise SourceError(
                f"cannot collect {self._topics!r}: {error.args[0].str()}; name topics, globs such as '*.dlq', "
                "or POSIX patterns that begin with '^'"
            ) from None

    def _found(self, consumer: Consumer) -> bool:
        """Whether there is anything to collect now; raise SourceError if a named topic does not exist."""
        try:
            there = consumer.list_topics(timeout=_REQUEST).topics
        except KafkaException as error:
            raise SourceError(f"cannot list the broker's topics: {error.args[0].str()}") from None
        missing = [topic for topic in self._topics if not topic.startswith("^") and topic not in there]
        if missing:
            raise SourceError(
                f"cannot collect {missing[0]!r}: there is no such topic that this client may see; "
                "check its name, or use a glob"
            )
        return any(re.match(topic, name) for topic in self._topics for name in there)

    def _is_record(self, message: Any) -> bool:
        error = message.error()
        place = message.topic(), message.partition()
        if error is None:
            self._ended.discard(place)
            return True
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name for it
            self._ended.add(place)
        elif is_final(error):
            raise SourceError(f"cannot collect {message.topic() or self._topics!r}: {said(error, self._config)}")
        else:
            _log.warning("the collector's Kafka client reports: %s", error.str())
        return False

    def _note(self, place: tuple[str, int], offset: int) -> None:
        """Note how far a partition was read; one that starts again may be of a topic that was created again."""
        if offset <= self._last.get(place, -1):
            self._ids.pop(place[0], None)
        self._last[place] = offset

    def _is_at_end(self, consumer: Consumer) -> bool:
        assigned = {(place.topic, place.partition) for place in consumer.assignment()}
        return bool(assigned) and assigned <= self._ended

    def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        taken = {(place.topic, place.partition) for place in places}
        self._ended -= taken
        facts.tell_revoked(self._group, places, max(0, len(consumer.assignment()) - len(taken)))


def _pattern(topic: str) -> str:
    """Return a glob as a POSIX pattern for the client; any other name unchanged."""
    if topic.startswith("^") or not set(topic) & set("*?["):
        return topic
    parts = re.split(r"(\*|\?|\[[^\]]+\])", topic)  # every second one is a sign
    return "^" + "".join(_sign(part) if at % 2 else re.escape(part) for at, part in enumerate(parts)) + "$"


def _sign(text: str) -> str:
    return {"*": ".*", "?": "."}.get(text) or text.replace("[!", "[^", 1)
