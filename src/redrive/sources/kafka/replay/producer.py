"""
The producer of a replay.

Owns sending dead letters back to the topic and partition they came from. A letter counts as sent once the broker
confirms it. Progress is committed up to the first unconfirmed letter, so that a replay that continues resends few
letters; a transactional one resends none. Blocks; for commands and scripts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from redrive.core.trace_context import carrier_in
from redrive.errors import SourceError
from redrive.failpoints import hit
from redrive.sources.kafka.client.errors import Heard, said
from redrive.sources.kafka.client.settings import may_fit_unbatched, producer_settings
from redrive.sources.kafka.dead_letters.oversize import whole
from redrive.sources.kafka.replay.filter import headers_home
from redrive.sources.kafka.replay.reader import REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.signals.otel import OpenTelemetry
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.replay.filter import DeadLetter
    from redrive.sources.kafka.replay.reader import Reader

_LATE = 5.0  # seconds that delivery reports may take beyond the message timeout
_NAP = 0.2  # seconds until a full producer queue is tried again


@dataclass(frozen=True, slots=True)
class OutgoingLetter:
    """A dead letter that may be sent back, with its whole value."""

    letter: DeadLetter
    value: bytes | None


def outgoing_letter(letter: DeadLetter, homes: tuple[str, ...], folder: str) -> OutgoingLetter:
    """Return *letter* ready to be sent to one of *homes*; raise SourceError if it may not be."""
    if not letter.home:
        raise SourceError(
            f"{letter.place} does not say where it came from, so it cannot be sent back; "
            "`redrive kafka collect` keeps it as a letter and can send it"
        )
    if letter.home not in homes:
        raise SourceError(
            f"{letter.place} came from {letter.home!r}, which this replay may not write to; allow it with --allow"
        )
    return OutgoingLetter(letter, whole(letter.place, letter.value, letter.headers, folder=folder))


class ReplayProducer:
    """Publishes letters and waits for the broker's confirmations; with a *name*, in transactions of that id."""

    def __init__(self, config: KafkaConfig, name: str, tracing: OpenTelemetry | None = None) -> None:
        self._config, self._name, self._heard, self._tracing = config, name, Heard(), tracing
        self._partitions: dict[str, int] = {}  # by topic
        self._may_fit_unbatched = False
        self._unbatched = False
        self._begin()

    def _begin(self) -> None:
        settings = producer_settings(
            self._config, linger_ms=5, timeout_ms=int(REQUEST * 1000), unbatched=self._unbatched,
            transactional_id=self._name,
        )  # fmt: skip
        self._producer = Producer({**settings, "error_cb": self._heard})
        try:
            if self._name:
                self._producer.init_transactions(REQUEST)
        except KafkaException as error:
            raise SourceError(f"cannot begin a transactional replay: {self._said(error)}") from None

    def send(self, outgoing: list[OutgoingLetter], reader: Reader, batch: list[Any]) -> None:
        """Send *outgoing*, the wanted letters of *batch*, and commit that *batch* is done."""
        if self._name:
            self._send_in_transaction(outgoing, reader, batch)
            return
        unsent, why = self._send(outgoing)
        if unsent and self._stops_batching():
            missing = {id(letter) for letter in unsent}
            unsent, why = self._send([each for each in outgoing if id(each.letter) in missing])
        reader.commit(_before(unsent, batch))
        _refuse(unsent, why)

    def _stops_batching(self) -> bool:
        """Send each letter in a batch of its own from now on, if a batch was too large; return whether that is new."""
        if not self._may_fit_unbatched:
            return False
        self._may_fit_unbatched, self._unbatched = False, True
        self._begin()
        return True

    def _send_in_transaction(self, outgoing: list[OutgoingLetter], reader: Reader, batch: list[Any]) -> None:
        try:
            self._transact(outgoing, reader, batch)
        except SourceError:
            if not self._stops_batching():
                raise
            self._transact(outgoing, reader, batch)

    def _transact(self, outgoing: list[OutgoingLetter], reader: Reader, batch: list[Any]) -> None:
        self._producer.begin_transaction()
        try:
            _refuse(*self._send(outgoing))
            hit("kafka.replay_sent")
            reader.commit_within(self._producer, batch)
            self._producer.commit_transaction(REQUEST)
        except KafkaException as error:
            self._abort()
            raise SourceError(
                f"{len(outgoing)} letters were not sent, their transaction failed: {self._said(error)}; "
                "run the same command again"
            ) from None
        except SourceError:
            self._abort()
            raise

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(REQUEST)
        except KafkaException:  # the broker aborts it when it times out
            return

    def _send(self, outgoing: list[OutgoingLetter]) -> tuple[list[DeadLetter], str]:
        """Publish *outgoing*; return the letters that were not confirmed, and why the first was not."""
        if self._tracing is None or not outgoing:
            return self._publish(outgoing)
        topics = {one.letter.home for one in outgoing}
        topic = topics.pop() if len(topics) == 1 else ""
        span = self._tracing.sending("kafka", topic, [carrier_in(one.letter.headers) for one in outgoing])
        with span.current():
            unsent, why = self._publish(outgoing)
        if unsent:
            span.fail("unconfirmed")
        self._tracing.sent("kafka", topic, span)
        return unsent, why

    def _publish(self, outgoing: list[OutgoingLetter]) -> tuple[list[DeadLetter], str]:
        waiting = {id(one): one.letter for one in outgoing}
        refused: list[str] = []

        def heard(one: OutgoingLetter, error: KafkaError | None) -> None:
            if error is None:
                del waiting[id(one)]
            else:
                self._may_fit_unbatched |= may_fit_unbatched(error, unbatched=self._unbatched)
                refused.append(said(error, self._config, self._heard))

        try:
            for one in outgoing:
                self._produce(one, heard)
            self._producer.flush(REQUEST + _LATE)
        except KafkaException as error:
            self._producer.flush(REQUEST + _LATE)  # some may still be confirmed
            refused.insert(0, self._said(error))
        return list(waiting.values()), refused[0] if refused else "the broker did not answer"

    def _produce(self, one: OutgoingLetter, heard: Callable[[OutgoingLetter, KafkaError | None], None]) -> None:
        letter = one.letter
        headers: Any = headers_home(letter)
        while True:
            try:
                self._producer.produce(
                    letter.home, value=one.value, key=letter.key, headers=headers,
                    partition=self._partition(letter), on_delivery=lambda error, _: heard(one, error),
                )  # fmt: skip
            except BufferError:
                self._producer.poll(_NAP)
            else:
                break
        self._producer.poll(0)

    def _partition(self, letter: DeadLetter) -> int:
        """Return the partition it came from, so that order per key holds; -1 if that partition does not exist."""
        if letter.home not in self._partitions:
            found = self._producer.list_topics(letter.home, REQUEST).topics[letter.home]
            if found.error is not None:
                raise KafkaException(found.error)
            self._partitions[letter.home] = len(found.partitions)
        return letter.home_partition if letter.home_partition < self._partitions[letter.home] else -1

    def _said(self, error: KafkaException) -> str:
        self._producer.poll(0)  # serves error_cb, which knows the reason
        return said(error.args[0], self._config, self._heard)


def _before(unsent: list[DeadLetter], batch: list[Any]) -> list[Any]:
    """Return the messages of *batch* before the first unsent one of their partition."""
    first: dict[int, int] = {}
    for letter in unsent:
        first[letter.partition] = min(letter.offset, first.get(letter.partition, letter.offset))
    return [each for each in batch if each.offset() < first.get(each.partition(), each.offset() + 1)]


def _refuse(unsent: list[DeadLetter], why: str) -> None:
    if unsent:
        place, home = unsent[0].place, unsent[0].home
        count = "1 letter was" if len(unsent) == 1 else f"{len(unsent)} letters were"
        raise SourceError(f"{count} not confirmed and not counted as sent, first {place} to {home!r}: {why}")
