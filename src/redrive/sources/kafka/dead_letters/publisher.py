"""
The publisher of dead letters.

Owns the producer, and every dead letter between its failure and the broker's delivery report. Only that report makes
it delivered: no exception, no flush. A publish that fails is tried again with the same backoff as work items; after
as many tries its partition is halted, and the publisher keeps trying until the broker takes it. Used by the control
thread only.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from redrive.core.decide import NextTry, next_try
from redrive.core.trace_context import carrier_in, continuing
from redrive.engine.clock import unix_ms
from redrive.failpoints import hit
from redrive.sources.kafka.client.settings import TOO_LARGE, may_fit_unbatched, producer_settings
from redrive.sources.kafka.dead_letters.codec import codec_of, failed_record
from redrive.sources.kafka.dead_letters.oversize import KEPT, least, pointing, spilled, without_ours
from redrive.sources.kafka.health import DeadLetterCounts
from redrive.sources.kafka.records.delay_queue import DelayQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.policy import RetryPolicy
    from redrive.engine.clock import Clock
    from redrive.signals.otel import OpenTelemetry
    from redrive.signals.otel.spans import OpenSpan
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.dead_letter import FailedRecord, Header, MessageParts
    from redrive.sources.kafka.records.record import Assignment, Record

_log = logging.getLogger("redrive.kafka")
_LOG_EVERY = 1.0  # seconds
_FULL_QUEUE_REST = 0.05  # seconds until the producer has room again, or a topic's partitions may be known
_HEADERS, _VALUE = 2, 3  # what is left out of a letter that is too large
_ANY_PARTITION = -1


class HaltsPartitions(Protocol):
    """Gets the partitions whose dead letters the broker refuses, and accepts again."""

    def halt(self, assignment: Assignment, why: str) -> None:
        """Note that the broker refuses dead letters of *assignment*."""

    def resume(self, assignment: Assignment) -> None:
        """Note that the broker accepts them again."""


class _Unconfirmed:
    """A dead letter that the broker has not confirmed."""

    __slots__ = ("failed", "halts", "left_out", "parts", "record", "span", "topic", "tries", "unbatched")

    def __init__(self, failed: FailedRecord, topic: str) -> None:
        self.failed, self.topic = failed, topic
        self.record = failed.event.record
        self.tries = 0
        self.halts = False
        self.unbatched = False  # sent in a batch of its own: only then is it known to be too large itself
        self.parts: MessageParts | None = None  # what is left of it; until then each try encodes it again
        self.left_out = 0  # what was left out to make it fit: 0 nothing, 3 most of its value
        self.span: OpenSpan | None = None


class DeadLetterPublisher:
    """
    Publishes dead letters until the broker confirms them.

    *delivered* gets each record whose dead letter is confirmed; *halts* gets the partitions whose dead letters the
    broker refuses, and accepts again.
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
        halts: HaltsPartitions,
        tracing: OpenTelemetry | None = None,
    ) -> None:
        self._config, self._group, self._policy, self._topics, self._clock = config, group, policy, topics, clock
        self._delivered, self._halts, self._codec, self._tracing = delivered, halts, codec_of(config), tracing
        self._producer = self._connect()
        self._unbatched: Producer | None = None  # made when it is needed
        self._broken = False  # a producer had a fatal error
        self._due: DelayQueue[_Unconfirmed] = DelayQueue()
        self._unconfirmed: dict[_Unconfirmed, float] = {}  # and since when, oldest first
        self.published = 0
        self.failures = 0  # publishes that failed
        self._logged: dict[str, float] = {}  # topic: when a failure was last logged; others would read the same

    @property
    def pending(self) -> int:
        """Dead letters that the broker has not confirmed."""
        return len(self._unconfirmed)

    def counts(self, now: float) -> DeadLetterCounts:
        """Return what became of dead letters so far."""
        age = now - next(iter(self._unconfirmed.values()), now)
        return DeadLetterCounts(self.published, self.pending, age, self.failures)

    def publish(self, event: CompletionEvent) -> None:
        """Begin to publish the dead letter of *event*."""
        topic = self._config.dlq_topic(event.record.assignment.topic)
        now = self._clock.monotonic()
        letter = _Unconfirmed(failed_record(event, self._group, now_ms=unix_ms(), monotonic=now), topic)
        if self._tracing is not None:
            carrier = letter.record.trace or carrier_in(letter.record.headers)
            letter.span = self._tracing.sending("kafka", topic, [carrier])
        self._unconfirmed[letter] = now
        self._send(letter)

    def poll(self) -> None:
        """Serve delivery reports, and publish again what is due."""
        if not self.pending:
            return
        for producer in self._producers():
            producer.poll(0)
        if self._broken:
            self._reconnect()
        if self._due.next_due is not None:
            for letter in self._due.pop_due(self._clock.monotonic()):
                self._send(letter)

    def forget(self, assignment: Assignment) -> None:
        """Drop what waits for another try of an assignment that has ended: the next owner gets it."""
        for letter in self._due.remove(lambda letter: letter.record.assignment is assignment):
            self._let_go(letter)

    def close(self) -> None:
        """Close the producers; records whose dead letters are not confirmed by now run again elsewhere."""
        for producer in self._producers():
            _discard(producer)

    # ------------------------------------------------------------------ one publish

    def _producers(self) -> list[Producer]:
        return [self._producer] if self._unbatched is None else [self._producer, self._unbatched]

    def _producer_for(self, letter: _Unconfirmed) -> Producer:
        if not letter.unbatched:
            return self._producer
        if self._unbatched is None:
            self._unbatched = self._connect(unbatched=True)
        return self._unbatched

    def _connect(self, *, unbatched: bool = False) -> Producer:
        # A dead letter only delays its offset, and each batch wakes two threads: batches may linger.
        return Producer(producer_settings(self._config, linger_ms=25, unbatched=unbatched))

    def _send(self, letter: _Unconfirmed) -> None:
        record = letter.record
        if record.assignment.closed:
            self._let_go(letter)
            return
        if letter.topic in self._topics.awaited:
            self._due.push(self._clock.monotonic() + _FULL_QUEUE_REST, letter)
            return
        hit("kafka.before_dlq")
        parts = self._parts(letter)
        try:
            self._producer_for(letter).produce(
                letter.topic,
                value=parts.value,
                key=parts.key,
                partition=self._place(letter),
                on_delivery=partial(self._reported, letter),
                headers=parts.headers,  # type: ignore[arg-type]  # values may be None
            )
        except BufferError:
            self._due.push(self._clock.monotonic() + _FULL_QUEUE_REST, letter)
        except KafkaException as error:
            self._failed(letter, error.args[0])

    def _parts(self, letter: _Unconfirmed) -> MessageParts:
        """Return its content, which is kept only if something was left out: thousands of letters may wait."""
        if letter.parts is not None:
            return letter.parts
        parts = self._codec.encode(letter.failed)
        return parts if letter.span is None else parts._replace(headers=continuing(parts.headers, letter.span.carrier))

    def _let_go(self, letter: _Unconfirmed) -> None:
        del self._unconfirmed[letter]
        if letter.span is not None and self._tracing is not None:
            self._tracing.sent("kafka", letter.topic, letter.span)

    def _place(self, letter: _Unconfirmed) -> int:
        partition = letter.record.assignment.partition
        return partition if partition < self._topics.partitions(letter.topic) else _ANY_PARTITION

    def _reported(self, letter: _Unconfirmed, error: KafkaError | None, _message: Any) -> None:
        """Take in the delivery report of one dead letter."""
        if error is not None:
            self._failed(letter, error)
            return
        hit("kafka.after_dlq")
        self._let_go(letter)
        self.published += 1
        self._topics.taken(letter.topic)
        if letter.halts and not self._is_halting(letter.record.assignment):
            self._halts.resume(letter.record.assignment)
        if not letter.record.assignment.closed:
            self._delivered(letter.record)

    def _is_halting(self, assignment: Assignment) -> bool:
        return any(each.halts and each.record.assignment is assignment for each in self._unconfirmed)

    def _failed(self, letter: _Unconfirmed, error: KafkaError) -> None:
        if may_fit_unbatched(error, unbatched=letter.unbatched):
            letter.unbatched = True
            self._send(letter)
            return
        self.failures += 1
        letter.tries += 1
        self._broken = self._broken or error.fatal()
        if error.code() in TOO_LARGE and self._shorten(letter):
            self._send(letter)
            return
        again = next_try(letter.tries, self._policy, self._clock.draw())
        self._log(letter, error, again)
        if again.exhausted and not letter.halts:
            self._halt(letter, error)
        self._due.push(self._clock.monotonic() + again.delay, letter)

    def _shorten(self, letter: _Unconfirmed) -> bool:
        """Leave out the next part of a letter that is too large; False if nothing more may be left out."""
        if not self._codec.may_be_cut:
            return False
        letter.left_out += 1
        parts = self._parts(letter)
        if letter.left_out == 1:
            letter.parts = parts._replace(headers=without_ours(parts.headers))
            return True
        letter.parts = parts._replace(headers=least(parts.headers))
        if letter.left_out == _HEADERS:
            return True
        return letter.left_out == _VALUE and self._cut(letter, letter.parts)

    def _cut(self, letter: _Unconfirmed, parts: MessageParts) -> bool:
        """Leave out most of the value, once the whole is kept elsewhere."""
        record, folder = letter.record, self._config.dlq_spill_folder
        if not folder and self._config.dlq_oversize != "pointer":
            return False
        try:
            where: list[Header] = spilled(record, folder) if folder else pointing(record)
        except OSError as error:
            letter.left_out -= 1  # to be tried again: the folder may have room later
            _log.error("cannot write the value of %s, too large for its topic, to %s: %s", repr(record), folder, error)
            return False
        letter.parts = parts._replace(value=(record.value or b"")[:KEPT], headers=parts.headers + where)
        return True

    def _log(self, letter: _Unconfirmed, error: KafkaError, again: NextTry) -> None:
        if self._clock.monotonic() - self._logged.get(letter.topic, -_LOG_EVERY) >= _LOG_EVERY:
            self._logged[letter.topic] = self._clock.monotonic()
            form = "%s: its dead letter was refused by %s at attempt %d, next try in %.3f s: %s"
            _log.warning(form, repr(letter.record), letter.topic, letter.tries, again.delay, error.str())

    def _halt(self, letter: _Unconfirmed, error: KafkaError) -> None:
        """Halt its partition, which would otherwise read on while none of its offsets can be committed."""
        letter.halts = True
        self._halts.halt(letter.record.assignment, f"{letter.topic} takes no dead letters: {error.str()}")
        self._topics.doubt(letter.record.topic)

    def _reconnect(self) -> None:
        """Replace the producers; never from a callback of an old one, which would abort the process."""
        old = self._producers()
        self._producer, self._unbatched = self._connect(), None
        for producer in old:
            _discard(producer)  # its letters are reported as failed
        self._broken = False


def _discard(producer: Producer) -> None:
    producer.purge(in_queue=True, in_flight=True, blocking=False)
    producer.flush(1.0)
