"""
Parked keys.

Owns the set of parked keys of each assignment, and a compacted topic (`orders.dlq.parked`) that makes them known to
every consumer of the group. A record of a key there parks it, a tombstone unparks it. The consumer writes that
record before it publishes the key's first dead letter, reads the topic when a partition is assigned, and follows it
from then on. `Parking` belongs to the control thread; both threads use `ParkedKeys`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from redrive.errors import SourceError
from redrive.sources.kafka.client.errors import is_final, said
from redrive.sources.kafka.client.settings import producer_settings, reader_settings
from redrive.sources.kafka.dead_letters.topics import BrokerAway
from redrive.sources.kafka.records.delay_queue import DelayQueue
from redrive.sources.kafka.records.disposition import Disposition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.record import Assignment, Record

_log = logging.getLogger("redrive.kafka")
_REQUEST = 15.0  # seconds
_AGAIN = 0.5  # seconds until a note that the broker refused is written again
_SUFFIX = ".parked"
_GROUP = "redrive-parked"  # nothing is committed under it
_Place = tuple[str, int]  # of the topic of parked keys
_Key = tuple["Assignment", bytes]


def parked_topic(dlq: str) -> str:
    """Return the topic that holds the keys parked behind dead letters of *dlq*."""
    return f"{dlq}{_SUFFIX}"


class ParkedKeys:
    """The keys of each assignment whose records wait behind a dead letter. Both threads use it; each step is atomic."""

    def __init__(self) -> None:
        self._keys: dict[Assignment, set[bytes]] = {}

    def of(self, assignment: Assignment) -> frozenset[bytes]:
        """Return the parked keys of *assignment*."""
        return frozenset(self._keys.get(assignment, ()))

    def holds(self, record: Record) -> bool:
        """Whether the key of *record* is parked."""
        return record.key in self._keys.get(record.assignment, ())

    def add(self, assignment: Assignment, key: bytes) -> None:
        """Park *key*."""
        if not assignment.closed:
            self._keys.setdefault(assignment, set()).add(key)

    def discard(self, assignment: Assignment, key: bytes) -> None:
        """Unpark *key*."""
        self._keys.get(assignment, set()).discard(key)

    def forget(self, assignment: Assignment) -> None:
        """Forget the keys of an assignment that has ended."""
        self._keys.pop(assignment, None)


class Parking:
    """
    Writes and reads the topic of parked keys, and keeps *keys* up to date.

    *publish* gets each dead letter once its key's note is confirmed; *again* gets records that need not be parked.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topics: DeadLetterTopics,
        clock: Clock,
        keys: ParkedKeys,
        publish: Callable[[CompletionEvent], None],
        again: Callable[[list[Record]], None],
    ) -> None:
        self._config, self._topics, self._clock, self._keys = config, topics, clock, keys
        self._publish, self._again = publish, again
        self._producer = Producer(producer_settings(config, linger_ms=0))
        self._reader = Consumer(reader_settings(config, _GROUP))
        self._ours: dict[_Place, set[Assignment]] = {}  # several share a place if that topic has fewer partitions
        self._positions: dict[_Place, int] = {}
        self._noting: dict[_Key, list[CompletionEvent]] = {}  # dead letters that wait for their key's note
        self._noted: dict[_Key, int] = {}  # parked keys, and the offset of their note
        self._due: DelayQueue[_Key] = DelayQueue()

    def bury(self, event: CompletionEvent) -> None:
        """Publish the dead letter of *event* after the note of its key."""
        key = event.record.assignment, event.record.key
        if key[1] is None or key in self._noted:
            self._publish(event)
        elif key in self._noting:
            self._noting[key].append(event)
        elif event.disposition is Disposition.PARKED:  # its key was just unparked; a note would park it again
            self._again([event.record])
        else:
            self._keys.add(key[0], key[1])
            self._noting[key[0], key[1]] = [event]
            self._note((key[0], key[1]))

    def poll(self) -> None:
        """Serve delivery reports and read which keys were unparked."""
        self._producer.poll(0)
        for key in self._due.pop_due(self._clock.monotonic()):
            if key in self._noting:
                self._note(key)
        if self._ours:
            for message in self._reader.consume(100, 0):
                self._read_one(message)

    def assigned(self, assignments: Collection[Assignment], is_stopping: Callable[[], bool] = lambda: False) -> None:
        """
        Read which keys of *assignments* are parked; retry until that is known or the consumer stops.

        Raise SourceError if retrying is pointless.
        """
        while not is_stopping():
            try:
                self._topics.prepare({each.topic for each in assignments})
                self._read(assignments)
            except BrokerAway as error:
                _log.warning("cannot read the parked keys yet, will retry: %s", error)
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
                missing -= self._read_one(message)
            if self._clock.monotonic() > end:
                raise BrokerAway(f"the broker did not send the parked keys of {sorted(missing)}")

    def forget(self, assignment: Assignment) -> None:
        """Drop everything about an assignment that has ended."""
        self._ours = {place: left for place, ours in self._ours.items() if (left := ours - {assignment})}
        self._noting = {key: events for key, events in self._noting.items() if key[0] is not assignment}
        self._noted = {key: at for key, at in self._noted.items() if key[0] is not assignment}
        self._keys.forget(assignment)
        self._watch()

    def close(self) -> None:
        """Close both clients."""
        self._reader.close()
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)

    # ------------------------------------------------------------------ writing

    def _note(self, key: _Key) -> None:
        topic, partition = self._place(key[0])
        value = str(self._noting[key][0].record.offset).encode()
        try:
            self._producer.produce(
                topic, value=value, key=key[1], partition=partition, on_delivery=partial(self._reported, key)
            )
        except (BufferError, KafkaException):
            self._due.push(self._clock.monotonic() + _AGAIN, key)

    def _reported(self, key: _Key, error: KafkaError | None, message: Any) -> None:
        if key not in self._noting:
            return  # its partition was revoked
        if error is not None:
            self._due.push(self._clock.monotonic() + _AGAIN, key)
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

    def _read_one(self, message: Any) -> set[_Place]:
        """Take in one message; return the partitions that are read up to their end."""
        place = message.topic(), message.partition()
        error = message.error()
        if error is not None and is_final(error):
            why = said(error, self._config)
            raise SourceError(f"cannot read the parked keys from {place[0]!r}: {why}, or set dlq_park_keys=False")
        if error is not None:
            return {place} if error.code() == KafkaError._PARTITION_EOF else set()  # noqa: SLF001 - the client's name
        self._positions[place] = message.offset() + 1
        for assignment in self._ours.get(place, ()):
            self._learn(assignment, message.key() or b"", message.offset(), is_parked=message.value() is not None)
        return set()

    def _learn(self, assignment: Assignment, key: bytes, offset: int, *, is_parked: bool) -> None:
        place = assignment, key
        if offset < self._noted.get(place, -1):
            return  # read a second time
        if is_parked:
            self._noted[place] = offset
            self._keys.add(assignment, key)
        elif place not in self._noting and offset > self._noted.get(place, -1):
            self._noted.pop(place, None)
            self._keys.discard(assignment, key)
