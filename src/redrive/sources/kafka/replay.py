"""
Dead letters out of their topic: looked at, counted, sent home.

Owns reading a dead-letter topic from outside of any consumer's group, and the replay of what a
choice picks: each to the topic it came from, once the broker has confirmed it the place is
committed under the replay's own group, so that one that was cut short goes on where it stood.
What was replayed too often stays. Blocks; for commands and scripts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.failpoints import hit
from redrive.sources.kafka.choice import Choice, DeadLetter, headers_home, read_letter
from redrive.sources.kafka.oversize import whole
from redrive.sources.kafka.parking import let_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig

_REQUEST = 15.0  # seconds
_BATCH = 500


@dataclass(slots=True)
class Receipt:
    """What a replay did, or would do: the numbers add up to `seen`."""

    seen: int = 0
    replayed: int = 0
    left: int = 0  # not chosen
    parked: int = 0  # replayed too often already
    by_disposition: Counter[str] = field(default_factory=Counter)  # of the chosen ones
    by_exception: Counter[str] = field(default_factory=Counter)


def browse(config: KafkaConfig, topic: str, choice: Choice) -> Iterator[DeadLetter]:
    """Yield the dead letters of *topic* that *choice* picks, up to where it ends now; commits nothing."""
    reader = _Reader(config, topic, f"redrive-browse-{topic}", resume=False)
    try:
        for batch in reader.batches(_BATCH):
            yield from filter(choice.picks, map(read_letter, batch))
    finally:
        reader.close()


def replay(
    config: KafkaConfig,
    topic: str,
    choice: Choice,
    *,
    allowed: tuple[str, ...] = (),
    max_replays: int = 3,
    rate: float | None = None,
    dry_run: bool = False,
    transactional: bool = False,
    clock: Clock | None = None,
) -> Receipt:
    """
    Send the dead letters of *topic* that *choice* picks back to where they came from.

    They go only to the topic whose dead letters these are, or to an *allowed* one. A second
    replay with the same choice goes on after the first. Raise SourceError if the broker does
    not confirm one, or its home is not allowed; what was confirmed until then is done.
    *transactional* sends and remembers in one transaction: who reads with read_committed sees
    each letter once, also after a crash.
    """
    homes = (topic.removesuffix(config.dlq_topic_suffix), *allowed)
    reader = _Reader(config, topic, choice.group(topic), resume=True)
    sender = None if dry_run else _Sender(config, choice.group(topic) if transactional else "")
    receipt, pace = Receipt(), _Pace(rate, clock or SystemClock())
    try:
        for batch in reader.batches(_BATCH if rate is None else max(1, min(_BATCH, int(rate)))):
            letters = [read_letter(message) for message in batch]
            chosen = [letter for letter in letters if _counted(letter, choice, max_replays, receipt)]
            if sender is not None:
                sender.send(chosen, homes, reader, batch)
                pace.rest(len(chosen))
    finally:
        reader.close()
    return receipt


def _counted(letter: DeadLetter, choice: Choice, max_replays: int, receipt: Receipt) -> bool:
    receipt.seen += 1
    if not choice.picks(letter):
        receipt.left += 1
        return False
    if letter.replays >= max_replays:
        receipt.parked += 1
        return False
    receipt.replayed += 1
    receipt.by_disposition[letter.disposition] += 1
    receipt.by_exception[letter.exception] += 1
    return True


class _Reader:
    """Reads a topic up to where it ended when this began."""

    def __init__(self, config: KafkaConfig, topic: str, group: str, *, resume: bool) -> None:
        ours = {"group.id": group, "enable.auto.commit": False, "enable.partition.eof": True}
        self._consumer = Consumer({**config.client_settings(), **config.consumer_settings, **ours})
        self._ends: dict[int, int] = {}
        try:
            self._consumer.assign(self._starts(topic, resume=resume))
        except KafkaException as error:
            self._consumer.close()
            raise SourceError(f"cannot read {topic!r}: {error.args[0].str()}") from None

    def batches(self, size: int) -> Iterator[list[Any]]:
        open_ = {number for number, end in self._ends.items() if end > 0}
        while open_:
            batch = []
            messages: list[Any] = self._consumer.consume(size, 1.0)
            for message in messages:
                self._note(message, open_)
                if message.error() is None and message.offset() < self._ends[message.partition()]:
                    batch.append(message)
            if batch:
                yield batch

    def commit(self, batch: list[Any]) -> None:
        self._consumer.commit(offsets=_after(batch), asynchronous=False)

    def commit_within(self, producer: Producer, batch: list[Any]) -> None:
        producer.send_offsets_to_transaction(_after(batch), self._consumer.consumer_group_metadata(), _REQUEST)

    def close(self) -> None:
        self._consumer.close()

    def _note(self, message: Any, open_: set[int]) -> None:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name for it
            raise SourceError(f"cannot read {message.topic()!r}: {error.str()}")
        if error is not None or message.offset() + 1 >= self._ends[message.partition()]:
            open_.discard(message.partition())

    def _starts(self, topic: str, *, resume: bool) -> list[TopicPartition]:
        found = self._consumer.list_topics(topic, _REQUEST).topics[topic]
        if found.error is not None:
            raise SourceError(f"cannot read {topic!r}: {found.error.str()}")
        places = [TopicPartition(topic, number) for number in found.partitions]
        committed = self._consumer.committed(places, _REQUEST) if resume else places
        starts = []
        for place in committed:
            if place.error is not None:  # not "nothing was committed", which would replay all of them again
                raise KafkaException(place.error)
            low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, place.partition), _REQUEST)
            start = max(place.offset, low) if place.offset >= 0 else low
            self._ends[place.partition] = high if high > start else 0
            starts.append(TopicPartition(topic, place.partition, start))
        return starts


def _after(batch: list[Any]) -> list[TopicPartition]:
    after = {(message.topic(), message.partition()): message.offset() + 1 for message in batch}
    return [TopicPartition(topic, number, offset) for (topic, number), offset in after.items()]


class _Sender:
    """Publishes letters and believes only the broker's own word; with a *name* of its own, in transactions."""

    def __init__(self, config: KafkaConfig, name: str) -> None:
        ours = {"enable.idempotence": True, "acks": "all", "message.max.bytes": 1_000_000_000}
        own_name = {"transactional.id": name} if name else {}
        self._partitions: dict[str, int] = {}  # by topic
        self._in_transactions = bool(name)
        self._folder = config.dlq_spill_folder
        settings = {"linger.ms": 5, **config.client_settings(), **config.producer_settings}
        self._producer = Producer({**settings, **ours, **own_name})
        if name:
            self._producer.init_transactions(_REQUEST)

    def send(self, letters: list[DeadLetter], homes: tuple[str, ...], reader: _Reader, batch: list[Any]) -> None:
        """Send *letters*, those of *batch* that are meant, and remember that *batch* is done."""
        if not self._in_transactions:
            self._send(letters, homes)
            reader.commit(batch)
            return
        self._producer.begin_transaction()
        try:
            self._send(letters, homes)
            hit("kafka.replay_sent")
            reader.commit_within(self._producer, batch)
            self._producer.commit_transaction(_REQUEST)
        except KafkaException as error:
            self._producer.abort_transaction(_REQUEST)
            raise SourceError(f"{len(letters)} letters stay where they are: {error.args[0].str()}") from None
        except SourceError:
            self._producer.abort_transaction(_REQUEST)
            raise

    def _send(self, letters: list[DeadLetter], homes: tuple[str, ...]) -> None:
        confirmed: list[DeadLetter] = []
        refused: list[str] = []
        stray = next((letter for letter in letters if letter.home not in homes), None)
        if stray is not None:
            raise SourceError(_refusal(stray))
        for letter in letters:
            self._produce(letter, confirmed, refused)
        self._producer.flush(_REQUEST)
        if len(confirmed) < len(letters):
            why = refused[0] if refused else "no answer"
            raise SourceError(
                f"{len(letters) - len(confirmed)} letters were not confirmed and stay where they are: {why}"
            )

    def _produce(self, letter: DeadLetter, confirmed: list[DeadLetter], refused: list[str]) -> None:
        def heard(error: KafkaError | None, _message: Any) -> None:
            if error is None:
                confirmed.append(letter)
            else:
                refused.append(error.str())

        headers: Any = headers_home(letter)
        value = whole(letter.place, letter.value, letter.headers, folder=self._folder)
        try:
            self._producer.produce(
                letter.home, value=value, key=letter.key, headers=headers, on_delivery=heard,
                partition=self._partition(letter),
            )  # fmt: skip
        except (BufferError, KafkaException) as error:
            refused.append(str(error))
        self._producer.poll(0)

    def _partition(self, letter: DeadLetter) -> int:
        """Return the partition it came from, so that it meets the others of its key, or -1 if there is none."""
        if letter.home not in self._partitions:
            found = self._producer.list_topics(letter.home, _REQUEST).topics[letter.home]
            self._partitions[letter.home] = len(found.partitions)
        return letter.home_partition if letter.home_partition < self._partitions[letter.home] else -1


def _refusal(letter: DeadLetter) -> str:
    if not letter.home:
        return f"{letter.place} does not say where it came from; `redrive kafka collect` keeps it and can send it home"
    return f"{letter.place} came from {letter.home!r}, which this replay may not write to; allow it by name"


class _Pace:
    """Rests so that no more than *rate* letters a second go out."""

    def __init__(self, rate: float | None, clock: Clock) -> None:
        self._rate, self._clock = rate, clock
        self._began, self._sent = clock.monotonic(), 0

    def rest(self, sent: int) -> None:
        self._sent += sent
        if self._rate:
            ahead = self._sent / self._rate - (self._clock.monotonic() - self._began)
            if ahead > 0:
                self._clock.block(ahead)


def release(config: KafkaConfig, topic: str, key: str, *, max_replays: int = 3) -> Receipt:
    """
    Send the dead letters of a parked *key* home in their order, then let its records run again.

    Those that arrive meanwhile are parked and sent after; the key is released once none is left.
    """
    total = Receipt()
    while (done := replay(config, topic, Choice(key=key), max_replays=max_replays)).replayed:
        total.replayed += done.replayed
    let_run(config, topic, key.encode())
    total.replayed += replay(config, topic, Choice(key=key), max_replays=max_replays).replayed
    total.seen = total.replayed
    return total
