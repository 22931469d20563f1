"""
Outputs, dead letters and offsets in one transaction.

Owns the exactly-once mode: what a record came to is kept until a Kafka transaction holds its
outputs or its dead letter together with the offsets that say that it is done. An output commits
only with an offset map that contains its record: what does not fit into the map waits. After an
error the transaction is aborted and everything in it is tried again. Takes the place of both
the commits and the dead-letter publisher. Used by the control thread only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from redrive.engine.clock import new_id, unix_ms
from redrive.errors import SourceError
from redrive.failpoints import hit
from redrive.sources.kafka.client.errors import said
from redrive.sources.kafka.client.unbatched import ALONE, TOO_LARGE
from redrive.sources.kafka.dead_letters.headers import dead_letter_headers
from redrive.sources.kafka.execution.producing import ANY_PARTITION, Output
from redrive.sources.kafka.offsets.done_map import LIMIT, fits, write_map
from redrive.sources.kafka.offsets.rice_code import NARROW, WIDE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from confluent_kafka import Consumer

    from redrive.core.policy import RetryPolicy
    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.control.partition import Partition
    from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.record import Assignment, Record

_log = logging.getLogger("redrive.kafka")
_LIMIT = 15.0  # seconds for one step of a transaction
_LOOK = 2.0  # seconds for the question whether a topic is there
_QUICK = 0.05  # seconds between transactions when nothing is left to do
_FULL_QUEUE_REST = 0.05  # seconds until the producer has room again
_LEAST_ROOM = 256  # characters; a broker that allows fewer gets another alphabet


class _Result(NamedTuple):
    """What a record came to: the messages that must be in the transaction which commits it."""

    record: Record
    messages: tuple[Output, ...]
    is_dead: bool
    since: float = 0.0  # when it became a dead letter


class _Failing(NamedTuple):
    """What is known of a partition whose last transaction failed."""

    tries: int = 0  # in a row
    not_before: float = 0.0


class _Part(NamedTuple):
    """One partition's share of a transaction."""

    partition: Partition
    place: tuple[int, str]
    results: list[_Result]


class Transactions:
    """
    Commits results in transactions, at most one in *commit_interval_ms* while work goes on.

    *delivered* hears of each record that is committed; *halt* and *resume* hear of partitions whose
    transactions fail again and again, and succeed again.
    """

    def __init__(
        self,
        config: KafkaConfig,
        group: str,
        policy: RetryPolicy,
        topics: DeadLetterTopics | None,
        clock: Clock,
        *,
        delivered: Callable[[Record], None],
        halt: Callable[[Assignment, str], None],
        resume: Callable[[Assignment], None],
    ) -> None:
        self._config, self._group, self._policy, self._topics, self._clock = config, group, policy, topics, clock
        self._done, self._halt, self._resume = delivered, halt, resume
        self._interval = config.commit_interval_ms / 1000
        self._alphabet, self._limit = WIDE, LIMIT
        self._results: list[_Result] = []
        self._consumer: Consumer
        self._partitions: Callable[[], Collection[Partition]]
        self._last = self._not_before = 0.0
        self._failing: dict[Assignment, _Failing] = {}  # these have a transaction each: one may hold up itself only
        self._there: set[str] = set()  # topics that are known to exist
        self._alone: dict[str, int] = {}  # of each message, once a batch was larger than its topic takes
        self._asked = False  # whether the broker was asked to commit
        self._in_doubt: list[_Part] = []  # … and did not say whether it has
        self.published = 0  # dead letters
        self.failures = 0
        self.last_error = ""
        self._name = (
            config.transactional_id or f"redrive-{group}-{new_id()}"
        )  # one for life: a new producer ends the old
        self._producer = self._connect()

    @property
    def pending(self) -> int:
        """How many dead letters are in no transaction yet."""
        return sum(result.is_dead for result in self._results)

    def age(self, now: float) -> float:
        """Return for how many seconds the oldest of them has waited, 0 if there is none."""
        return now - next((result.since for result in self._results if result.is_dead), now)

    def open(self, consumer: Consumer, partitions: Callable[[], Collection[Partition]]) -> None:
        """Fence whoever had this producer's name before; raise SourceError if the broker has no transactions."""
        self._consumer, self._partitions = consumer, partitions
        try:
            self._producer.init_transactions(_LIMIT)
        except KafkaException as error:
            raise SourceError(f"cannot begin transactions for group {self._group!r}: {error.args[0].str()}") from None

    def succeeded(self, record: Record) -> None:
        """Commit *record*, with its outputs, in the next transaction."""
        self._results.append(_Result(record, record.outputs, is_dead=False))

    def publish(self, event: CompletionEvent) -> None:
        """Commit the record of *event*, with its dead letter, in the next transaction."""
        record, now = event.record, unix_ms()
        age = self._clock.monotonic() - record.first_failed if record.first_failed else 0.0
        headers = dead_letter_headers(event, self._group, failed_at=now, first_failed_at=now - int(age * 1000))
        topic = self._config.dlq_topic(record.topic)
        known = self._topics.partitions(topic) if self._topics is not None else 0
        partition = record.partition if record.partition < known else ANY_PARTITION
        letter = Output(topic=topic, value=record.value, key=record.key, headers=tuple(headers), partition=partition)
        self._results.append(_Result(record, (letter,), is_dead=True, since=self._clock.monotonic()))

    def poll(self) -> None:
        """Run a transaction, if it is time to and there is something to commit."""
        now = self._clock.monotonic()
        idle = sum(each.tracker.open for each in self._partitions()) <= len(self._results)
        if now >= self._not_before and now - self._last >= (min(_QUICK, self._interval) if idle else self._interval):
            self._run([each for each in self._partitions() if self._is_due(each.assignment, now)])

    def step(self, _consumer: Consumer, _partitions: Collection[Partition], _now: float, *, idle: bool) -> None:
        """Do nothing: `poll` does it all."""

    def now(self, _consumer: Consumer, partitions: Collection[Partition]) -> None:
        """Run a transaction for *partitions*, whether it is time to or not."""
        self._run(partitions)

    def forget(self, assignment: Assignment) -> None:
        """Drop what is not committed of a partition that is no longer ours: the next owner has it."""
        self._results = [result for result in self._results if result.record.assignment is not assignment]
        self._failing.pop(assignment, None)

    def close(self) -> None:
        """Leave; what is not committed by now will run again elsewhere."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)

    # ------------------------------------------------------------------ one transaction

    def _run(self, partitions: Iterable[Partition]) -> None:
        self._last = self._clock.monotonic()
        if self._in_doubt and not self._settled():
            return
        together: list[Partition] = []
        alone: list[Partition] = []
        for each in partitions:
            (alone if each.assignment in self._failing else together).append(each)
        self._commit(together)
        for each in alone:
            if not self._in_doubt:
                self._commit([each])

    def _is_due(self, assignment: Assignment, now: float) -> bool:
        failing = self._failing.get(assignment)
        return failing is None or now >= failing.not_before

    def _commit(self, partitions: Iterable[Partition]) -> None:
        """Run one transaction with what there is of *partitions*."""
        found = [part for each in partitions if (part := self._part(each)) is not None]
        parts = [part for part in found if not self._is_put_off(part)]
        if not parts:
            return
        try:
            self._transact(parts)
        except KafkaException as error:
            self._failed(parts, error.args[0])
        else:
            self._committed(parts)

    def _is_put_off(self, part: _Part) -> bool:
        """
        Put *part* off if a topic that it writes to is not there; return whether that was done.

        The client would wait for the topic, and everybody for the client, until the transaction is out of time.
        """
        topics = {message.topic for result in part.results for message in result.messages} - self._there
        try:
            for topic in topics:
                found = self._producer.list_topics(topic, _LOOK).topics[topic]
                if found.error is not None:
                    raise KafkaException(found.error)  # noqa: TRY301 - said as one that the question itself raises
                self._there.add(topic)
        except KafkaException as error:
            self.failures += 1
            self.last_error = f"its outputs or dead letters cannot be sent: {said(error.args[0], self._config)}"
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self.last_error = f"there is no topic {topic!r} for its outputs or dead letters; create it"
            self._put_off(part.partition)
            return True
        return False

    def _part(self, partition: Partition) -> _Part | None:
        """Return what can be committed of *partition*: as many results as its offset map has room for."""
        results = [result for result in self._results if result.record.assignment is partition.assignment]
        if not results and not partition.dirty:
            return None
        results.sort(key=lambda result: result.record.offset)
        count = self._fitting(partition, results)
        watermark, ranges = partition.tracker.if_done({result.record.offset for result in results[:count]})
        if watermark is None:
            return None
        partition.gaps = len(ranges)
        place = watermark, write_map(watermark, ranges, limit=self._limit, alphabet=self._alphabet)
        partition.dirty = False
        return None if place == partition.committed and not count else _Part(partition, place, results[:count])

    def _fitting(self, partition: Partition, results: list[_Result]) -> int:
        """Return how many of *results*, lowest first, can be done with a map that leaves nothing out."""
        if self._fits(partition, results):  # nearly always
            return len(results)
        low, high = 0, len(results) - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._fits(partition, results[:middle]) else (low, middle - 1)
        return low

    def _fits(self, partition: Partition, results: list[_Result]) -> bool:
        watermark, ranges = partition.tracker.if_done({result.record.offset for result in results})
        return watermark is None or fits(watermark, ranges, limit=self._limit, alphabet=self._alphabet)

    def _transact(self, parts: list[_Part]) -> None:
        producer, self._asked = self._producer, False
        producer.begin_transaction()
        hit("kafka.tx_begun")
        for part in parts:
            for result in part.results:
                for message in result.messages:
                    self._produce(message)
        hit("kafka.tx_produced")
        producer.send_offsets_to_transaction(list(map(_place, parts)), self._consumer.consumer_group_metadata(), _LIMIT)
        hit("kafka.tx_before_commit")
        self._asked = True
        producer.commit_transaction(_LIMIT)
        hit("kafka.tx_after_commit")

    def _produce(self, message: Output) -> None:
        headers: Any = list(message.headers)
        while True:
            try:
                self._producer.produce(
                    message.topic, value=message.value, key=message.key, headers=headers, partition=message.partition
                )
            except BufferError:
                self._producer.poll(_FULL_QUEUE_REST)
            else:
                return

    # ------------------------------------------------------------------ how it ended

    def _committed(self, parts: list[_Part]) -> None:
        done = {id(result) for part in parts for result in part.results}
        self._results = [result for result in self._results if id(result) not in done]
        for part in parts:
            part.partition.committed = part.place
            for result in part.results:
                self.published += result.is_dead
                if result.is_dead and self._topics is not None:
                    self._topics.taken(result.messages[0].topic)
                self._done(result.record)
            part.partition.dirty = False
            self._failing.pop(part.partition.assignment, None)
            self._resume(part.partition.assignment)
        self.last_error = ""

    def _failed(self, parts: list[_Part], error: KafkaError) -> None:
        self.failures += 1
        self.last_error = error.str()
        self._there.clear()  # one of them may be gone
        if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
            self._shorten()
        if error.code() in TOO_LARGE:
            self._alone = ALONE
        if not self._abort(fatal=error.fatal()) and self._asked:
            self._in_doubt = parts
        form = "a transaction of %s failed and is tried again: %s"
        _log.warning(form, ", ".join(part.partition.name for part in parts), self.last_error)
        for part in parts:
            self._put_off(part.partition)

    def _put_off(self, partition: Partition) -> None:
        partition.dirty = True
        tries = self._failing.get(partition.assignment, _Failing()).tries + 1
        delay = self._policy.delay(tries, self._clock.draw())
        self._failing[partition.assignment] = _Failing(tries, self._clock.monotonic() + delay)
        if tries >= self._policy.max_attempts:
            self._halt(partition.assignment, f"its transactions fail: {self.last_error}")

    def _abort(self, *, fatal: bool) -> bool:
        """Take back what was sent, and start a new producer; return whether it is known to be taken back."""
        try:
            if not fatal:
                self._producer.abort_transaction(_LIMIT)
        except KafkaException as error:
            fatal = True
            _log.warning("a transaction could not be aborted: %s", error.args[0].str())
        try:
            # Also after an abort: the numbers of messages that the broker refused are missing, and for that it would
            # refuse the next transaction, too, though it is another partition's.
            self._begin_anew()
        except KafkaException as error:  # the next transaction says so, and starts another one
            _log.warning("a new producer could not begin: %s", error.args[0].str())
        return not fatal

    def _begin_anew(self) -> None:
        """Start a new producer of the same name: whatever the old one had open is committed or aborted after this."""
        self._producer = self._connect()
        self._producer.init_transactions(_LIMIT)

    def _settled(self) -> bool:
        """Find out whether a commit that nobody answered was carried out; False while that cannot be known."""
        parts = [part for part in self._in_doubt if not part.partition.assignment.closed]
        try:
            self._begin_anew()
            found = self._consumer.committed([_place(part) for part in parts], _LIMIT) if parts else []
        except KafkaException as error:
            tries = max((each.tries for each in self._failing.values()), default=1)
            self._not_before = self._clock.monotonic() + self._policy.delay(tries, self._clock.draw())
            _log.warning("whether a transaction was committed is not known yet: %s", error.args[0].str())
            return False
        self._in_doubt = []
        there = [(each.offset, (each.metadata or "").rstrip("\0")) for each in found]
        if parts and there == [part.place for part in parts]:
            self._committed(parts)
        return True

    def _shorten(self) -> None:
        """Write smaller maps: this broker allows less than others."""
        if self._limit // 2 >= _LEAST_ROOM:
            self._limit //= 2
        else:
            self._alphabet = NARROW

    def _connect(self) -> Producer:
        return Producer({
            "linger.ms": 5,
            "message.max.bytes": 1_000_000_000,  # the topics' own limits decide
            "allow.auto.create.topics": True,  # if the broker does: by asking for one, not only by writing to it
            **self._config.client_settings("producer"),
            **self._config.producer_settings,
            **self._alone,
            "enable.idempotence": True,
            "acks": "all",
            "transactional.id": self._name,
            "transaction.timeout.ms": self._config.transaction_timeout_ms,
            "message.timeout.ms": self._config.transaction_timeout_ms,
        })  # fmt: skip


def _place(part: _Part) -> TopicPartition:
    owner = part.partition.assignment
    return TopicPartition(owner.topic, owner.partition, *part.place)
