"""
Which keys are parked, so that everybody knows.

Owns a compacted topic beside the dead-letter topic (`orders.dlq.parked`): a record of a key says
that it is parked, a tombstone that it was released. A key is noted there before its first dead
letter is published, read when a partition is assigned, and watched for releases meanwhile. Used
by the control thread only; `release` is for commands and scripts.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from redrive.errors import SourceError
from redrive.sources.kafka.client.errors import is_final, said
from redrive.sources.kafka.dead_letters.topics import BrokerAway
from redrive.sources.kafka.execution.parking import PARKED
from redrive.sources.kafka.records.delay_queue import Waiting
from redrive.sources.kafka.replay.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.record import Assignment, Record

_log = logging.getLogger("redrive.kafka")
_REQUEST = 15.0  # seconds
_BATCH = 500
_AGAIN = 0.5  # seconds until a note that was not taken is written again
_SUFFIX = ".parked"
_MOST_DIGITS = 19  # of an offset
_Place = tuple[str, int]  # of the topic of parked keys
_Key = tuple["Assignment", bytes]


def parked_topic(dlq: str) -> str:
    """Return the topic that says which keys are parked behind dead letters of *dlq*."""
    return f"{dlq}{_SUFFIX}"


class Parking:
    """Notes parked keys; *publish* gets each dead letter once its key is noted, *again* what need not be parked."""

    def __init__(
        self,
        config: KafkaConfig,
        topics: DeadLetterTopics,
        clock: Clock,
        publish: Callable[[CompletionEvent], None],
        again: Callable[[list[Record]], None],
    ) -> None:
        self._config, self._topics, self._clock, self._publish, self._again = config, topics, clock, publish, again
        self._producer = Producer(_producer_settings(config))
        self._reader = Consumer(_reader_settings(config))
        self._ours: dict[_Place, set[Assignment]] = {}  # several share a place if that topic has fewer partitions
        self._positions: dict[_Place, int] = {}
        self._noting: dict[_Key, list[CompletionEvent]] = {}  # dead letters that wait for their key's note
        self._noted: dict[_Key, int] = {}  # keys that are parked, and where that is noted
        self._waiting: Waiting[_Key] = Waiting()

    def bury(self, event: CompletionEvent) -> None:
        """Publish the dead letter of *event*, after its key is noted as parked."""
        key = event.record.assignment, event.record.key
        if key[1] is None or key in self._noted:
            self._publish(event)
        elif key in self._noting:
            self._noting[key].append(event)
        elif event.disposition == PARKED:  # its key was released in this moment; noting it would park the key anew
            self._again([event.record])
        else:
            key[0].parked.add(key[1])
            self._noting[key[0], key[1]] = [event]
            self._note((key[0], key[1]))

    def poll(self) -> None:
        """Hear what was noted, and which keys were released."""
        self._producer.poll(0)
        for key in self._waiting.pop_due(self._clock.monotonic()):
            if key in self._noting:
                self._note(key)
        if self._ours:
            for message in self._reader.consume(100, 0):
                self._hear(message)

    def assigned(self, assignments: Collection[Assignment], is_stopping: Callable[[], bool] = lambda: False) -> None:
        """
        Read which keys of *assignments* are parked; ask until that is known, or we are to stop.

        Raise SourceError if it will never be known.
        """
        while not is_stopping():
            try:
                self._topics.prepare({each.topic for each in assignments})
                self._read(assignments)
            except BrokerAway as error:
                _log.warning("which keys are parked is asked for again: %s", error)
                self._clock.block(_AGAIN)
            else:
                return

    def _read(self, assignments: Collection[Assignment]) -> None:
        new = set()
        for each in assignments:
            new.add(self._place(each))
            self._ours.setdefault(self._place(each), set()).add(each)
        self._positions |= dict.fromkeys(new, 0)
        self._watch()
        missing, end = set(new), self._clock.monotonic() + _REQUEST
        while missing:
            message = self._reader.poll(0.1)
            if message is not None:
                missing -= self._hear(message)
            if self._clock.monotonic() > end:
                raise BrokerAway(f"which keys are parked cannot be read from {sorted(missing)}")

    def forget(self, assignment: Assignment) -> None:
        """Let go of a partition that is no longer ours."""
        self._ours = {place: left for place, ours in self._ours.items() if (left := ours - {assignment})}
        self._noting = {key: events for key, events in self._noting.items() if key[0] is not assignment}
        self._noted = {key: at for key, at in self._noted.items() if key[0] is not assignment}
        self._watch()

    def close(self) -> None:
        """Leave."""
        self._reader.close()
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)

    # ------------------------------------------------------------------ writing

    def _note(self, key: _Key) -> None:
        topic, partition = self._place(key[0])
        value = str(self._noting[key][0].record.offset).encode()
        try:
            self._producer.produce(
                topic, value=value, key=key[1], partition=partition, on_delivery=partial(self._heard, key)
            )
        except (BufferError, KafkaException):
            self._waiting.push(self._clock.monotonic() + _AGAIN, key)

    def _heard(self, key: _Key, error: KafkaError | None, message: Any) -> None:
        if key not in self._noting:
            return  # its partition is no longer ours
        if error is not None:
            self._waiting.push(self._clock.monotonic() + _AGAIN, key)
            return
        self._noted[key] = message.offset()
        for event in self._noting.pop(key):
            self._publish(event)

    # ------------------------------------------------------------------ reading

    def _place(self, assignment: Assignment) -> _Place:
        topic = parked_topic(self._config.dlq_topic(assignment.topic))
        return topic, assignment.partition % max(1, self._topics.partitions(topic))

    def _watch(self) -> None:
        self._reader.assign([TopicPartition(*place, self._positions[place]) for place in self._ours])

    def _hear(self, message: Any) -> set[_Place]:
        """Take in one message; return the partitions that are read up to their end."""
        place = message.topic(), message.partition()
        error = message.error()
        if error is not None and is_final(error):
            why = said(error, self._config)
            raise SourceError(
                f"which keys are parked cannot be read from {place[0]!r}: {why}, or set dlq_park_keys=False"
            )
        if error is not None:
            return {place} if error.code() == KafkaError._PARTITION_EOF else set()  # noqa: SLF001 - the client's name
        self._positions[place] = message.offset() + 1
        for assignment in self._ours.get(place, ()):
            self._learn(assignment, message.key() or b"", message.offset(), is_parked=message.value() is not None)
        return set()

    def _learn(self, assignment: Assignment, key: bytes, offset: int, *, is_parked: bool) -> None:
        place = assignment, key
        if offset < self._noted.get(place, -1):
            return  # it is read again
        if is_parked:
            self._noted[place] = offset
            assignment.parked.add(key)
        elif place not in self._noting and offset > self._noted.get(place, -1):
            self._noted.pop(place, None)
            assignment.parked.discard(key)


def parked_keys(config: KafkaConfig, dlq: str) -> dict[bytes, int]:
    """Return the keys that are parked behind dead letters of *dlq*, with the offset of the record that parked them."""
    found: dict[bytes, int] = {}
    for message in _all(config, parked_topic(dlq)):
        if message.value() is None:
            found.pop(message.key() or b"", None)
        else:
            found[message.key() or b""] = _offset(message.value())
    return found


def _offset(text: bytes) -> int:
    """Return the offset that a note holds, -1 if somebody else wrote it."""
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else -1


def let_run(config: KafkaConfig, dlq: str, key: bytes) -> None:
    """Say that *key* is no longer parked; raise SourceError unless the broker confirms it."""
    topic = parked_topic(dlq)
    places = {message.partition() for message in _all(config, topic) if message.key() == key}
    refused: list[str] = []
    producer = Producer(_producer_settings(config))

    def heard(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            refused.append(error.str())

    for partition in places:
        producer.produce(topic, value=None, key=key, partition=partition, on_delivery=heard)
    if producer.flush(_REQUEST) or refused:
        raise SourceError(f"the release was not written to {topic!r}: {refused[0] if refused else 'no answer'}")


def _all(config: KafkaConfig, topic: str) -> Iterator[Any]:
    try:
        reader = Reader(config, topic, f"redrive-{PARKED}", resume=False)
    except SourceError as error:
        raise SourceError(f"which keys are parked is not known (dlq_park_keys makes that topic): {error}") from None
    try:
        for batch in reader.batches(_BATCH):
            yield from batch
    finally:
        reader.close()


def _producer_settings(config: KafkaConfig) -> dict[str, Any]:
    own = {"enable.idempotence": True, "acks": "all", "message.timeout.ms": config.dlq_flush_timeout_ms}
    return {"linger.ms": 0, **config.client_settings("producer"), **config.producer_settings, **own}


def _reader_settings(config: KafkaConfig) -> dict[str, Any]:
    own = {"group.id": f"redrive-{PARKED}", "enable.auto.commit": False, "enable.partition.eof": True}
    return {"auto.offset.reset": "earliest", **config.client_settings("consumer"), **config.consumer_settings, **own}
