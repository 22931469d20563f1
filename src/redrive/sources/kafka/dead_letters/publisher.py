"""
Dead letters on their way to their topic.

Owns the producer and every dead letter between its failure and the broker's own word that it
has been written. Only that word makes it delivered: no exception, no flush. A publish that
fails is tried again with the same backoff as work items; after as many tries its partition is
halted, and it is tried on until the broker takes it. Used by the control thread only.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from redrive.engine.clock import unix_ms
from redrive.failpoints import hit
from redrive.sources.kafka.client.unbatched import ALONE, TOO_LARGE
from redrive.sources.kafka.dead_letters.headers import dead_letter_headers
from redrive.sources.kafka.dead_letters.oversize import KEPT, least, pointing, spilled, without_ours
from redrive.sources.kafka.records.delay_queue import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.policy import RetryPolicy
    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.dead_letters.headers import Header
    from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.record import Assignment, Record

_log = logging.getLogger("redrive.kafka")
_TELL_EVERY = 1.0  # seconds
_FULL_QUEUE_REST = 0.05  # seconds until the producer has room again, or a topic's partitions may be known
_HEADERS, _VALUE = 2, 3  # what is left out of a letter that is too large
_ANY_PARTITION = -1


class _DeadLetter:
    __slots__ = (
        "alone", "event", "failed_at", "first_failed_at", "halts", "headers", "left_out", "record", "topic", "tries",
        "value",
    )  # fmt: skip

    def __init__(self, event: CompletionEvent, topic: str, *, failed_at: int, first_failed_at: int) -> None:
        self.event, self.topic, self.failed_at, self.first_failed_at = event, topic, failed_at, first_failed_at
        self.record = event.record
        self.tries = 0
        self.halts = False
        self.alone = False  # whether it shares its batch with no other: only then it is itself too large
        self.value = event.record.value
        self.headers: list[Header] | None = None  # what is left of them; until then they are made for each try
        self.left_out = 0  # what had to be left out to make it fit: 0 nothing, 3 most of its value


class DeadLetterPublisher:
    """
    Publishes dead letters until the broker confirms them.

    *delivered* hears of each record that is safe; *halt* and *resume* hear of partitions whose
    dead letters the broker does not take, and takes again.
    """

    def __init__(
        self,
        config: KafkaConfig,
        group: str,
        policy: RetryPolicy,
        topics: DeadLetterTopics,
        clock: Clock,
        *,
        delivered: Callable[[Record], None],
        halt: Callable[[Assignment, str], None],
        resume: Callable[[Assignment], None],
    ) -> None:
        self._config, self._group, self._policy, self._topics, self._clock = config, group, policy, topics, clock
        self._delivered, self._halt, self._resume = delivered, halt, resume
        self._producer = self._connect()
        self._lone: Producer | None = None  # sends each by itself; made when it is needed
        self._broken = False  # by an error that a producer does not survive
        self._waiting: Waiting[_DeadLetter] = Waiting()
        self._unconfirmed: dict[_DeadLetter, float] = {}  # and since when, oldest first
        self.published = 0
        self.failures = 0  # publishes that failed
        self._told: dict[str, float] = {}  # topic: when a failure was last logged; the others would say the same

    @property
    def pending(self) -> int:
        """How many dead letters the broker has not confirmed."""
        return len(self._unconfirmed)

    def age(self, now: float) -> float:
        """Return for how many seconds the oldest of them has waited, 0 if there is none."""
        return now - next(iter(self._unconfirmed.values()), now)

    def publish(self, event: CompletionEvent) -> None:
        """Begin to publish the dead letter of *event*."""
        record = event.record
        now, since = unix_ms(), self._clock.monotonic()
        age = since - record.first_failed if record.first_failed else 0.0
        topic = self._config.dlq_topic(record.assignment.topic)
        letter = _DeadLetter(event, topic, failed_at=now, first_failed_at=now - int(age * 1000))
        self._unconfirmed[letter] = since
        self._send(letter)

    def poll(self) -> None:
        """Hear what the broker says, and publish again what is due."""
        if not self.pending:
            return
        for producer in self._producers():
            producer.poll(0)
        if self._broken:
            self._reconnect()
        if self._waiting.next_due is not None:
            for letter in self._waiting.pop_due(self._clock.monotonic()):
                self._send(letter)

    def forget(self, assignment: Assignment) -> None:
        """Drop what waits for another try of a partition that is no longer ours: the next owner has it."""
        for letter in self._waiting.remove(lambda letter: letter.record.assignment is assignment):
            del self._unconfirmed[letter]

    def close(self) -> None:
        """Leave; what is not confirmed by now will run again elsewhere."""
        for producer in self._producers():
            _let_go(producer)

    # ------------------------------------------------------------------ one publish

    def _producers(self) -> list[Producer]:
        return [self._producer] if self._lone is None else [self._producer, self._lone]

    def _producer_for(self, letter: _DeadLetter) -> Producer:
        if not letter.alone:
            return self._producer
        if self._lone is None:
            self._lone = self._connect(ALONE)
        return self._lone

    def _connect(self, own: dict[str, int] | None = None) -> Producer:
        return Producer({
            "linger.ms": 25,  # nobody waits for a dead letter but its offset, and each batch wakes two threads
            "message.max.bytes": 1_000_000_000,  # the topic's own limit decides
            **self._config.client_settings("producer"),
            **self._config.producer_settings,
            **(own or {}),
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": self._config.dlq_flush_timeout_ms,
        })  # fmt: skip

    def _send(self, letter: _DeadLetter) -> None:
        record = letter.record
        if record.assignment.closed:
            del self._unconfirmed[letter]
            return
        if letter.topic in self._topics.awaited:
            self._waiting.push(self._clock.monotonic() + _FULL_QUEUE_REST, letter)
            return
        hit("kafka.before_dlq")
        try:
            self._producer_for(letter).produce(
                letter.topic,
                value=letter.value,
                key=record.key,
                partition=self._place(letter),
                on_delivery=partial(self._heard, letter),
                headers=self._headers(letter),  # type: ignore[arg-type]  # values may be None
            )
        except BufferError:
            self._waiting.push(self._clock.monotonic() + _FULL_QUEUE_REST, letter)
        except KafkaException as error:
            self._failed(letter, error.args[0])

    def _headers(self, letter: _DeadLetter) -> list[Header]:
        """Return its headers, which are worth keeping only if something was left out: thousands of letters may wait."""
        if letter.headers is not None:
            return letter.headers
        return dead_letter_headers(
            letter.event, self._group, failed_at=letter.failed_at, first_failed_at=letter.first_failed_at
        )

    def _place(self, letter: _DeadLetter) -> int:
        partition = letter.record.assignment.partition
        return partition if partition < self._topics.partitions(letter.topic) else _ANY_PARTITION

    def _heard(self, letter: _DeadLetter, error: KafkaError | None, _message: Any) -> None:
        """Hear the broker's word on one dead letter."""
        if error is not None:
            self._failed(letter, error)
            return
        hit("kafka.after_dlq")
        del self._unconfirmed[letter]
        self.published += 1
        self._topics.taken(letter.topic)
        if letter.halts and not self._is_halting(letter.record.assignment):
            self._resume(letter.record.assignment)
        if not letter.record.assignment.closed:
            self._delivered(letter.record)

    def _is_halting(self, assignment: Assignment) -> bool:
        return any(each.halts and each.record.assignment is assignment for each in self._unconfirmed)

    def _failed(self, letter: _DeadLetter, error: KafkaError) -> None:
        if error.code() in TOO_LARGE and not letter.alone:
            letter.alone = True  # its batch was; it may fit
            self._send(letter)
            return
        self.failures += 1
        letter.tries += 1
        self._broken = self._broken or error.fatal()
        if error.code() in TOO_LARGE and self._shorten(letter):
            self._send(letter)
            return
        delay = self._policy.delay(letter.tries, self._clock.draw())
        self._tell(letter, error, delay)
        self._waiting.push(self._clock.monotonic() + delay, letter)

    def _shorten(self, letter: _DeadLetter) -> bool:
        """Leave out the next thing of a letter that is too large; False if nothing more may be left out."""
        letter.left_out += 1
        headers = self._headers(letter)
        if letter.left_out == 1:
            letter.headers = without_ours(headers)
            return True
        letter.headers = least(headers)
        if letter.left_out == _HEADERS:
            return True
        return letter.left_out == _VALUE and self._cut(letter)

    def _cut(self, letter: _DeadLetter) -> bool:
        """Leave out most of the value, once it is safe elsewhere."""
        record, folder = letter.record, self._config.dlq_spill_folder
        if not folder and self._config.dlq_oversize != "pointer":
            return False
        try:
            letter.headers = self._headers(letter) + (spilled(record, folder) if folder else pointing(record))
        except OSError as error:
            letter.left_out -= 1  # to be tried again: the folder may have room later
            _log.error("the value of %s is too large for its topic and could not be kept in %s: %s",
                       repr(record), folder, error)  # fmt: skip
            return False
        letter.value = (record.value or b"")[:KEPT]
        return True

    def _tell(self, letter: _DeadLetter, error: KafkaError, delay: float) -> None:
        if self._clock.monotonic() - self._told.get(letter.topic, -_TELL_EVERY) >= _TELL_EVERY:
            self._told[letter.topic] = self._clock.monotonic()
            form = "the dead letter of %s was not taken by %s at attempt %d, next try in %.3f s: %s"
            _log.warning(form, repr(letter.record), letter.topic, letter.tries, delay, error.str())
        if letter.tries >= self._policy.max_attempts and not letter.halts:
            letter.halts = True
            self._halt(letter.record.assignment, f"{letter.topic} takes no dead letters: {error.str()}")
            self._topics.doubt(letter.record.topic)

    def _reconnect(self) -> None:
        """Start over with a new producer; never within a callback of the old one, which ends the process."""
        old = self._producers()
        self._producer, self._lone = self._connect(), None
        for producer in old:
            _let_go(producer)  # its letters come back as failed
        self._broken = False


def _let_go(producer: Producer) -> None:
    producer.purge(in_queue=True, in_flight=True, blocking=False)
    producer.flush(1.0)
