"""
Outputs, dead letters and offsets in one transaction.

Owns the exactly-once mode. The result of a record is kept until one Kafka transaction holds its outputs or its dead
letter together with the offsets that mark it as done. An output commits only with an offset map that contains its
record; results that do not fit into the map wait. After an error the transaction is aborted and tried again. Used by
the control thread only.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from redrive.core.decide import next_try
from redrive.core.trace_context import carrier_in, continuing
from redrive.engine.clock import new_id, unix_ms
from redrive.errors import SourceError
from redrive.failpoints import hit
from redrive.sources.kafka.client.bounded import within
from redrive.sources.kafka.client.errors import said
from redrive.sources.kafka.client.settings import may_fit_unbatched, transaction_settings
from redrive.sources.kafka.control.results import log_given_up
from redrive.sources.kafka.control.transaction_parts import PartitionPart, RecordResult, outputs_of, part_of
from redrive.sources.kafka.dead_letters.codec import codec_of, failed_record
from redrive.sources.kafka.health import DeadLetterCounts
from redrive.sources.kafka.offsets.done_map import MapRoom
from redrive.sources.kafka.records.output import ANY_PARTITION, Output

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from confluent_kafka import Consumer

    from redrive.core.policy import RetryPolicy
    from redrive.engine.clock import Clock
    from redrive.signals.otel import OpenTelemetry
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.control.partition import Partition, Partitions
    from redrive.sources.kafka.dead_letters.publisher import HaltsPartitions
    from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.record import Assignment, Record

_log = logging.getLogger("redrive.kafka")
_LIMIT = 15.0  # seconds for one step of a transaction
_EARLIER_FAILED = KafkaError._STATE  # noqa: SLF001 - an earlier step of the transaction failed, with a better reason
_SPARE = 1.0  # seconds in which the client should notice its own limit
_LOOK = 2.0  # seconds to ask whether a topic exists
_QUICK = 0.05  # seconds between transactions when nothing is left to do
_FULL_QUEUE_REST = 0.05  # seconds until the producer has room again


class _Failing(NamedTuple):
    """A partition whose last transaction failed."""

    tries: int = 0  # in a row
    not_before: float = 0.0


class Transactions:
    """
    Commits results in transactions, at most one in *commit_interval_ms* while there is work.

    *halts* gets the partitions whose transactions fail again and again, and those whose transactions succeed again.
    """

    def __init__(
        self,
        config: KafkaConfig,
        group: str,
        policy: RetryPolicy,
        topics: DeadLetterTopics | None,
        clock: Clock,
        *,
        partitions: Partitions,
        halts: HaltsPartitions,
        tracing: OpenTelemetry | None = None,
    ) -> None:
        self._tracing = tracing
        self._config, self._group, self._policy, self._topics, self._clock = config, group, policy, topics, clock
        self._partitions, self._halts, self._codec = partitions, halts, codec_of(config)
        self._interval = config.commit_interval_ms / 1000
        self._room = MapRoom()
        self._results: list[RecordResult] = []
        self._consumer: Consumer
        self._last = self._not_before = 0.0
        self._failing: dict[
            Assignment, _Failing
        ] = {}  # these have a transaction each, so that one does not hold up the others
        self._existing: set[str] = set()  # topics that are known to exist
        self._unbatched = False  # set once a batch was larger than its topic takes
        self._asked = False  # whether the broker was asked to commit
        self._in_doubt: list[PartitionPart] = []  # the broker was asked to commit them and did not answer
        self._published = 0  # dead letters
        self.commit_failures = 0
        self.last_error = ""
        # One name for the whole life: a new producer of this name fences the old one.
        self._name = config.transactional_id or f"redrive-{group}-{new_id()}"
        self._producer = self._connect()

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callbacks of the consumer: none, transactions commit by themselves."""
        return {}

    def dead_letters(self, now: float) -> DeadLetterCounts:
        """Return what became of dead letters so far."""
        pending = [result.since for result in self._results if result.is_dead]
        age = now - pending[0] if pending else 0.0
        return DeadLetterCounts(self._published, len(pending), age, self.commit_failures)

    def open(self, consumer: Consumer) -> None:
        """Fence an earlier producer of the same name; raise SourceError if the broker has no transactions."""
        self._consumer = consumer
        try:
            self._producer.init_transactions(_LIMIT)
        except KafkaException as error:
            raise SourceError(f"cannot begin transactions for group {self._group!r}: {error.args[0].str()}") from None

    def succeeded(self, records: list[Record]) -> None:
        """Commit *records*, with their outputs, in the next transaction."""
        self._results += [RecordResult(record, outputs_of(record), is_dead=False) for record in records]

    def assigned(self, _assignments: Collection[Assignment], _is_stopping: Callable[[], bool]) -> None:
        """Do nothing: a transaction needs to know nothing of new partitions."""

    def bury(self, event: CompletionEvent) -> None:
        """Commit the record of *event*, with its dead letter, in the next transaction."""
        record = event.record
        if self._topics is None:
            log_given_up(event)
            self.succeeded([record])
            return
        now = self._clock.monotonic()
        parts = self._codec.encode(failed_record(event, self._group, now_ms=unix_ms(), monotonic=now))
        topic = self._config.dlq_topic(record.topic)
        partition = record.partition if record.partition < self._topics.partitions(topic) else ANY_PARTITION
        headers = tuple(continuing(parts.headers, record.trace or {}))
        letter = Output(topic=topic, value=parts.value, key=parts.key, headers=headers, partition=partition)
        self._results.append(RecordResult(record, (letter,), is_dead=True, since=now))

    def poll(self) -> None:
        """Run a transaction, if it is time and there is something to commit."""
        now = self._clock.monotonic()
        idle = sum(each.tracker.open for each in self._partitions.all) <= len(self._results)
        if now >= self._not_before and now - self._last >= (min(_QUICK, self._interval) if idle else self._interval):
            self._run([each for each in self._partitions.all if self._is_due(each.assignment, now)])

    def step(self, _now: float, *, idle: bool) -> None:
        """Do nothing: `poll` runs the transactions, also while a partition drains."""

    def commit(self, partitions: Collection[Partition]) -> None:
        """Run a transaction for *partitions* now."""
        self._run(partitions)

    def forget(self, assignment: Assignment) -> None:
        """Drop what is not committed of an assignment that has ended: the next owner gets it."""
        self._results = [result for result in self._results if result.record.assignment is not assignment]
        self._failing.pop(assignment, None)

    def close(self) -> None:
        """Close the producer; what is not committed by now runs again elsewhere."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)

    # ------------------------------------------------------------------ one transaction

    def _run(self, partitions: Iterable[Partition]) -> None:
        self._last = self._clock.monotonic()
        if self._in_doubt and not self._settled():
            return
        together: list[Partition] = []
        in_own_transaction: list[Partition] = []
        for each in partitions:
            (in_own_transaction if each.assignment in self._failing else together).append(each)
        self._commit(together)
        for each in in_own_transaction:
            if not self._in_doubt:
                self._commit([each])

    def _is_due(self, assignment: Assignment, now: float) -> bool:
        failing = self._failing.get(assignment)
        return failing is None or now >= failing.not_before

    def _commit(self, partitions: Iterable[Partition]) -> None:
        """Run one transaction with the results of *partitions*."""
        found = [part for each in partitions if (part := part_of(each, self._results, self._room)) is not None]
        parts = [part for part in found if not self._is_put_off(part)]
        if not parts:
            return
        try:
            with self._span_of(parts):
                self._transact(parts)
        except KafkaException as error:
            self._failed(parts, error.args[0])
        else:
            self._committed(parts)

    def _span_of(self, parts: list[PartitionPart]) -> contextlib.AbstractContextManager[None]:
        """Span what a transaction sends; one that only commits offsets is none of a trace's business."""
        messages = [message for part in parts for result in part.results for message in result.messages]
        if self._tracing is None or not messages:
            return contextlib.nullcontext()
        carriers = [carrier_in(message.headers) for message in messages]
        return self._tracing.sending_all("kafka", (message.topic for message in messages), carriers)

    def _is_put_off(self, part: PartitionPart) -> bool:
        """
        Put *part* off if a topic that it writes to does not exist; return whether that was done.

        Otherwise the client would wait for the topic until the transaction times out, and all partitions with it.
        """
        topics = {message.topic for result in part.results for message in result.messages} - self._existing
        try:
            for topic in topics:
                found = self._producer.list_topics(topic, _LOOK).topics[topic]
                if found.error is not None:
                    raise KafkaException(found.error)  # noqa: TRY301 - handled like an error of the request itself
                self._existing.add(topic)
        except KafkaException as error:
            self.commit_failures += 1
            self.last_error = f"cannot send its outputs or dead letters: {said(error.args[0], self._config)}"
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self.last_error = (
                    f"its outputs or dead letters need the topic {topic!r}, which does not exist; create it"
                )
            self._put_off(part.partition)
            return True
        return False

    def _transact(self, parts: list[PartitionPart]) -> None:
        producer, self._asked = self._producer, False
        producer.begin_transaction()
        hit("kafka.tx_begun")
        for part in parts:
            for result in part.results:
                for message in result.messages:
                    self._produce(message)
        hit("kafka.tx_produced")
        places, member = list(map(_place, parts)), self._consumer.consumer_group_metadata()
        within(_LIMIT + _SPARE, producer.send_offsets_to_transaction, places, member, _LIMIT)
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

    def _committed(self, parts: list[PartitionPart]) -> None:
        done = {id(result) for part in parts for result in part.results}
        self._results = [result for result in self._results if id(result) not in done]
        for part in parts:
            part.partition.committed = part.place
            for result in part.results:
                self._published += result.is_dead
                if result.is_dead and self._topics is not None:
                    self._topics.taken(result.messages[0].topic)
            self._partitions.complete_all([result.record for result in part.results])
            part.partition.dirty = False
            self._failing.pop(part.partition.assignment, None)
            self._halts.resume(part.partition.assignment)
        self.last_error = ""

    def _failed(self, parts: list[PartitionPart], error: KafkaError) -> None:
        self.commit_failures += 1
        if not self.last_error or error.code() != _EARLIER_FAILED:
            self.last_error = error.str()
        self._existing.clear()  # one of them may have been deleted
        if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
            self._room.shrink()
        if may_fit_unbatched(error, unbatched=self._unbatched):
            self._unbatched = True
        if not self._abort(fatal=error.fatal()) and self._asked:
            self._in_doubt = parts
        form = "a transaction of %s failed, will retry: %s"
        _log.warning(form, ", ".join(part.partition.name for part in parts), self.last_error)
        for part in parts:
            self._put_off(part.partition)

    def _put_off(self, partition: Partition) -> None:
        partition.dirty = True
        tries = self._failing.get(partition.assignment, _Failing()).tries + 1
        again = next_try(tries, self._policy, self._clock.draw())
        self._failing[partition.assignment] = _Failing(tries, self._clock.monotonic() + again.delay)
        if again.exhausted:
            self._halts.halt(partition.assignment, f"its transactions fail: {self.last_error}")

    def _abort(self, *, fatal: bool) -> bool:
        """Abort the transaction and start a new producer; return whether the abort is certain."""
        try:
            if not fatal:
                self._producer.abort_transaction(_LIMIT)
        except KafkaException as error:
            fatal = True
            _log.warning("cannot abort a transaction: %s", error.args[0].str())
        try:
            # Also after an abort: the sequence numbers of refused messages are missing, and the broker would refuse
            # the next transaction too, even one of another partition.
            self._restart()
        except KafkaException as error:  # the next transaction fails for the same reason, and restarts it again
            _log.warning("cannot start a new transactional producer: %s", error.args[0].str())
        return not fatal

    def _restart(self) -> None:
        """Start a new producer of the same name: the broker then ends the old one's open transaction."""
        self._producer = self._connect()
        self._producer.init_transactions(_LIMIT)

    def _settled(self) -> bool:
        """Find out whether an unanswered commit was carried out; return False while that is unknown."""
        parts = [part for part in self._in_doubt if not part.partition.assignment.closed]
        try:
            self._restart()
            found = self._consumer.committed([_place(part) for part in parts], _LIMIT) if parts else []
        except KafkaException as error:
            tries = max((each.tries for each in self._failing.values()), default=1)
            self._not_before = self._clock.monotonic() + next_try(tries, self._policy, self._clock.draw()).delay
            _log.warning("cannot tell yet whether a transaction was committed, will ask again: %s", error.args[0].str())
            return False
        self._in_doubt = []
        there = [(each.offset, (each.metadata or "").rstrip("\0")) for each in found]
        if parts and there == [part.place for part in parts]:
            self._committed(parts)
        return True

    def _connect(self) -> Producer:
        return Producer(transaction_settings(self._config, self._name, unbatched=self._unbatched))


def _place(part: PartitionPart) -> TopicPartition:
    owner = part.partition.assignment
    return TopicPartition(owner.topic, owner.partition, *part.place)
