"""
A dead-letter topic, read from outside.

Owns a reader of one topic from where it begins, or where a group stands, up to where it ended at
the start: no member of any group, and nothing is committed unless it is asked to. A broker that
says nothing for too long ends it with a word. Blocks; for commands and scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.sources.kafka.client.errors import Heard, said
from redrive.sources.kafka.replay.filter import Choice
from redrive.sources.kafka.replay.progress import MAX_REPLAYS, Reached, with_choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from confluent_kafka import Producer

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.replay.filter import DeadLetter

REQUEST = 15.0  # seconds
_SILENCE = 30.0  # seconds without a word of the broker, while there is more to read
_REST = 0.2  # seconds until a coordinator is asked again
_STARTING = frozenset({
    KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE,
})  # fmt: skip


class Reader:
    """
    Reads *topic* up to where it ended when this began.

    With *resume* it begins where *group* stands, which `commit` moves, for letters that were replayed less
    than *max_replays* times, and what is committed says what *choice* it was; else only the partition and the
    offsets that *choice* asks for are read, and with *tail* only so many offsets at the end of each partition.
    """

    def __init__(
        self, config: KafkaConfig, topic: str, group: str, *, resume: bool, choice: Choice | None = None,
        max_replays: int = MAX_REPLAYS, tail: int | None = None, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._config, self._topic, self._clock = config, topic, clock or SystemClock()
        self._max_replays, self._reached = max_replays, dict[int, Reached]()
        self._picked = "" if choice is None else choice.text
        self._choice, self._tail = (choice if not resume else None) or Choice(), tail
        self._heard = Heard()
        ours: dict[str, Any] = {
            "group.id": group, "enable.auto.commit": False, "enable.partition.eof": True,
            "auto.offset.reset": "earliest", "error_cb": self._heard,
        }  # fmt: skip
        self._consumer = Consumer({**config.client_settings("consumer"), **config.consumer_settings, **ours})
        self._ends: dict[int, int] = {}  # of partitions that have something to read
        self._at: dict[int, int] = {}  # where they are read next
        try:
            self._consumer.assign(self._starts(resume=resume))
        except KafkaException as error:
            beside = self._consumer.poll(0)  # what it says beside an answer that never came: the reason
            why = beside.error() if beside is not None else None
            self._consumer.close()
            raise self._trouble(why or error.args[0]) from None
        except SourceError:
            self._consumer.close()
            raise

    @property
    def partitions(self) -> set[int]:
        """Those that have something to read."""
        return set(self._ends)

    def batches(self, size: int) -> Iterator[list[Any]]:
        """Yield the messages, up to *size* of them at once; those of each partition in their order."""
        open_, heard_at = set(self._ends), self._clock.monotonic()
        while open_:
            messages: list[Any] = self._consumer.consume(min(size, self._left(open_)), 1.0)
            if messages:
                heard_at = self._clock.monotonic()
            elif self._clock.monotonic() - heard_at > _SILENCE:
                raise self._trouble(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - the client's own name for it
            for message in messages:
                self._note(message, open_)
            batch = [each for each in messages if each.error() is None and self._is_wanted(each)]
            if batch:
                yield batch

    def commit(self, batch: Iterable[Any]) -> None:
        """Remember that *batch* is done; raise SourceError if the broker does not."""
        places = self._after(batch)
        try:
            if places:
                self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            why = said(error.args[0], self._config, self._heard)
            raise SourceError(f"what was sent could not be noted, and the same command sends it again: {why}") from None

    def commit_within(self, producer: Producer, batch: Iterable[Any]) -> None:
        """Remember that *batch* is done, in the transaction of *producer*."""
        producer.send_offsets_to_transaction(self._after(batch), self._consumer.consumer_group_metadata(), REQUEST)

    def has_gone(self, letter: DeadLetter) -> bool:
        """Whether the group has sent *letter* already: it reads again what was left as replayed too often."""
        return self._reached[letter.partition].has(letter.offset, letter.replays)

    def close(self) -> None:
        """Let go."""
        self._consumer.close()

    def _after(self, batch: Iterable[Any]) -> list[TopicPartition]:
        after = {message.partition(): message.offset() + 1 for message in batch}
        for number, offset in after.items():
            self._reached[number].moved(self._max_replays, offset)
        reached = [(number, self._reached[number]) for number in after]
        notes = {number: with_choice(at.note, self._picked) for number, at in reached}
        return [TopicPartition(self._topic, number, at.furthest, metadata=notes[number]) for number, at in reached]

    def _is_wanted(self, message: Any) -> bool:
        return int(message.offset()) < self._ends.get(message.partition(), 0)

    def _left(self, open_: set[int]) -> int:
        """Return how many messages are still to come, at most: the client would wait for more than there are."""
        return max(sum(self._ends[number] - self._at[number] for number in open_), 1)

    def _note(self, message: Any, open_: set[int]) -> None:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name for it
            raise self._trouble(error)
        self._at[message.partition()] = after = message.offset() + (error is None)
        if error is not None or after >= self._ends.get(message.partition(), 0):
            open_.discard(message.partition())

    def _starts(self, *, resume: bool) -> list[TopicPartition]:
        """Return where to begin in those partitions that have something to read."""
        found = self._consumer.list_topics(self._topic, REQUEST).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        asked = [TopicPartition(self._topic, number) for number in found.partitions]
        places = [each for each in asked if self._choice.partition in {None, each.partition}]
        starts = (self._start(place) for place in (self._committed(places) if resume else places))
        return [place for place in starts if place.partition in self._ends]

    def _committed(self, places: list[TopicPartition]) -> list[TopicPartition]:
        """Return what was committed; a coordinator that has only just started is asked again."""
        end = self._clock.monotonic() + REQUEST
        while True:
            found = []
            try:
                found = self._consumer.committed(places, REQUEST)
                errors = [place.error for place in found if place.error is not None]
            except KafkaException as error:
                errors = [error.args[0]]
            if not errors:  # else not "nothing was committed", which would replay all of them again
                return found
            if errors[0].code() not in _STARTING or self._clock.monotonic() > end:
                raise KafkaException(errors[0])
            self._clock.block(_REST)

    def _start(self, place: TopicPartition) -> TopicPartition:
        number, choice = place.partition, self._choice
        low, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), REQUEST)
        is_new = place.offset > high  # it has less than was committed: the topic was made anew
        reached = self._reached[number] = Reached() if is_new else Reached(place.offset, place.metadata)
        start = max(reached.start(self._max_replays), low, choice.first or 0)
        end = high if choice.last is None else min(high, choice.last + 1)
        if self._tail is not None:
            start = max(start, end - self._tail)
        if end > start:
            self._ends[number], self._at[number] = end, start
        return TopicPartition(self._topic, number, start)

    def _trouble(self, error: KafkaError) -> SourceError:
        return SourceError(f"cannot read {self._topic!r}: {said(error, self._config, self._heard)}")
