"""
Dead letters on their way home.

Owns the producer of a replay: letters go to the topic and the partition they came from, and only
the broker's own word makes one sent. What was sent is remembered up to the first one that was not,
so that whoever goes on sends little twice; in a transaction, nothing. Blocks; for commands and scripts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from redrive.errors import SourceError
from redrive.failpoints import hit
from redrive.sources.kafka.client.errors import Heard, said
from redrive.sources.kafka.client.unbatched import ALONE, TOO_LARGE
from redrive.sources.kafka.dead_letters.oversize import whole
from redrive.sources.kafka.replay.filter import headers_home
from redrive.sources.kafka.replay.reader import REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.replay.filter import DeadLetter
    from redrive.sources.kafka.replay.reader import Reader

_LAST_WORD = 5.0  # seconds that the broker's word may come late
_NAP = 0.2  # seconds that may pass until somebody who wants us to stop is heard


@dataclass(frozen=True, slots=True)
class Parcel:
    """A dead letter that may go home, with its whole value."""

    letter: DeadLetter
    value: bytes | None


def packed(letter: DeadLetter, homes: tuple[str, ...], folder: str) -> Parcel:
    """Return *letter* ready to go to one of *homes*; raise SourceError, with the way out, if it may not."""
    if not letter.home:
        raise SourceError(
            f"{letter.place} does not say where it came from; `redrive kafka collect` keeps it and can send it home"
        )
    if letter.home not in homes:
        raise SourceError(
            f"{letter.place} came from {letter.home!r}, which this replay may not write to; allow it by name"
        )
    return Parcel(letter, whole(letter.place, letter.value, letter.headers, folder=folder))


class HomeSender:
    """Publishes letters and believes only the broker's own word; with a *name* of its own, in transactions."""

    def __init__(self, config: KafkaConfig, name: str) -> None:
        self._config, self._name, self._heard = config, name, Heard()
        self._partitions: dict[str, int] = {}  # by topic
        self._is_crowded = False  # whether a batch was larger than its topic takes
        self._alone: dict[str, int] = {}
        self._begin()

    def _begin(self) -> None:
        config = self._config
        ours: dict[str, Any] = {
            "enable.idempotence": True, "acks": "all", "message.max.bytes": 1_000_000_000,
            "message.timeout.ms": int(REQUEST * 1000), "error_cb": self._heard, **self._alone,
        }  # fmt: skip
        own_name = {"transactional.id": self._name} if self._name else {}
        settings = {"linger.ms": 5, **config.client_settings("producer"), **config.producer_settings}
        self._producer = Producer({**settings, **ours, **own_name})
        try:
            if self._name:
                self._producer.init_transactions(REQUEST)
        except KafkaException as error:
            raise SourceError(f"cannot begin a transactional replay: {self._said(error)}") from None

    def send(self, parcels: list[Parcel], reader: Reader, batch: list[Any]) -> None:
        """Send *parcels*, those of *batch* that are meant, and remember that *batch* is done."""
        if self._name:
            self._send_in_one(parcels, reader, batch)
            return
        unsent, why = self._send(parcels)
        if unsent and self._goes_alone():
            missing = {id(letter) for letter in unsent}
            unsent, why = self._send([each for each in parcels if id(each.letter) in missing])
        reader.commit(_before(unsent, batch))
        _refuse(unsent, why)

    def _goes_alone(self) -> bool:
        """Send each letter by itself from now on, if a batch was too large; return whether that is new."""
        if self._alone or not self._is_crowded:
            return False
        self._alone = ALONE
        self._begin()
        return True

    def _send_in_one(self, parcels: list[Parcel], reader: Reader, batch: list[Any]) -> None:
        try:
            self._send_at_once(parcels, reader, batch)
        except SourceError:
            if not self._goes_alone():
                raise
            self._send_at_once(parcels, reader, batch)

    def _send_at_once(self, parcels: list[Parcel], reader: Reader, batch: list[Any]) -> None:
        self._producer.begin_transaction()
        try:
            _refuse(*self._send(parcels))
            hit("kafka.replay_sent")
            reader.commit_within(self._producer, batch)
            self._producer.commit_transaction(REQUEST)
        except KafkaException as error:
            self._abort()
            raise SourceError(f"{len(parcels)} letters stay where they are: {self._said(error)}") from None
        except SourceError:
            self._abort()
            raise

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(REQUEST)
        except KafkaException:  # the broker does it, at the latest when the transaction is out of time
            return

    def _send(self, parcels: list[Parcel]) -> tuple[list[DeadLetter], str]:
        """Publish *parcels*; return the letters that were not confirmed, and why the first was not."""
        waiting = {id(parcel): parcel.letter for parcel in parcels}
        refused: list[str] = []

        def heard(parcel: Parcel, error: KafkaError | None) -> None:
            if error is None:
                del waiting[id(parcel)]
            else:
                self._is_crowded = self._is_crowded or error.code() in TOO_LARGE
                refused.append(said(error, self._config, self._heard))

        try:
            for parcel in parcels:
                self._produce(parcel, heard)
            self._producer.flush(REQUEST + _LAST_WORD)
        except KafkaException as error:
            self._producer.flush(REQUEST + _LAST_WORD)  # some may be under way
            refused.insert(0, self._said(error))
        return list(waiting.values()), refused[0] if refused else "no answer"

    def _produce(self, parcel: Parcel, heard: Callable[[Parcel, KafkaError | None], None]) -> None:
        letter = parcel.letter
        headers: Any = headers_home(letter)
        while True:
            try:
                self._producer.produce(
                    letter.home, value=parcel.value, key=letter.key, headers=headers,
                    partition=self._partition(letter), on_delivery=lambda error, _: heard(parcel, error),
                )  # fmt: skip
            except BufferError:
                self._producer.poll(_NAP)
            else:
                break
        self._producer.poll(0)

    def _partition(self, letter: DeadLetter) -> int:
        """Return the partition it came from, so that it meets the others of its key, or -1 if there is none."""
        if letter.home not in self._partitions:
            found = self._producer.list_topics(letter.home, REQUEST).topics[letter.home]
            if found.error is not None:
                raise KafkaException(found.error)
            self._partitions[letter.home] = len(found.partitions)
        return letter.home_partition if letter.home_partition < self._partitions[letter.home] else -1

    def _said(self, error: KafkaException) -> str:
        self._producer.poll(0)  # to hear why
        return said(error.args[0], self._config, self._heard)


def _before(unsent: list[DeadLetter], batch: list[Any]) -> list[Any]:
    """Return those of *batch* before the first of their partition that was not sent."""
    first: dict[int, int] = {}
    for letter in unsent:
        first[letter.partition] = min(letter.offset, first.get(letter.partition, letter.offset))
    return [each for each in batch if each.offset() < first.get(each.partition(), each.offset() + 1)]


def _refuse(unsent: list[DeadLetter], why: str) -> None:
    if unsent:
        place, home = unsent[0].place, unsent[0].home
        count = "1 letter was" if len(unsent) == 1 else f"{len(unsent)} letters were"
        raise SourceError(f"{count} not confirmed and not counted as sent, first {place} to {home!r}: {why}")


class Pace:
    """Rests so that no more than *rate* letters a second go out."""

    def __init__(self, rate: float | None, clock: Clock, is_stopping: Callable[[], bool]) -> None:
        self._rate, self._clock, self._is_stopping = rate, clock, is_stopping
        self._began, self._sent = clock.monotonic(), 0

    def rest(self, sent: int) -> None:
        """Wait until *sent* more letters are within the rate, or somebody wants us to stop."""
        self._sent += sent
        while self._rate and not self._is_stopping():
            ahead = self._sent / self._rate - (self._clock.monotonic() - self._began)
            if ahead <= 0:
                return
            self._clock.block(min(ahead, _NAP))
