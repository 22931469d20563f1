"""
A bounded reader of one topic.

Owns reading a topic from its beginning, or from a group's committed offsets, up to the end it had at the start.
The reader joins no group and commits only when asked to. It raises an error when the broker is silent for too
long. Blocks; for commands and scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.sources.kafka.client.errors import Heard, said
from redrive.sources.kafka.client.settings import reader_settings
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.log_ends import log_ends
from redrive.sources.kafka.replay.progress import MAX_REPLAYS, Progress, with_filter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from confluent_kafka import Producer

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.kafka.replay.filter import DeadLetter

REQUEST = 15.0  # seconds
_SILENCE = 30.0  # seconds without a message while there is more to read
_REST = 0.2  # seconds between two requests to a coordinator that is starting
_STARTING = frozenset({
    KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE,
})  # fmt: skip


class Reader:
    """
    Reads *topic* up to the end that it has when the reader is made.

    With *resume* it begins at the progress of *group*, which `commit` moves, for letters replayed fewer than
    *max_replays* times; the commit holds the text of *wanted*. Without, it reads only the partition and the
    offsets that *wanted* names and, with *tail*, only that many offsets at the end of each partition.
    """

    def __init__(
        self, config: KafkaConfig, topic: str, group: str, *, resume: bool, wanted: Filter | None = None,
        max_replays: int = MAX_REPLAYS, tail: int | None = None, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._config, self._topic, self._clock = config, topic, clock or SystemClock()
        self._max_replays, self._reached = max_replays, dict[int, Progress]()
        self._picked = "" if wanted is None else wanted.text
        self._filter, self._tail = (wanted if not resume else None) or Filter(), tail
        self._heard = Heard()
        self._consumer = Consumer({**reader_settings(config, group), "error_cb": self._heard})
        self._ends: dict[int, int] = {}  # of partitions that have something to read
        self._at: dict[int, int] = {}  # the next offset to read in each
        try:
            self._consumer.assign(self._starts(resume=resume))
        except KafkaException as error:
            event = self._consumer.poll(0)  # a request that timed out has its reason in an event
            why = event.error() if event is not None else None
            self._consumer.close()
            raise self._trouble(why or error.args[0]) from None
        except SourceError:
            self._consumer.close()
            raise

    @property
    def partitions(self) -> set[int]:
        """The partitions that have something to read."""
        return set(self._ends)

    def batches(self, size: int) -> Iterator[list[Any]]:
        """Yield the messages in lists of up to *size*, in order within each partition."""
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
        """Commit that *batch* is done; raise SourceError if the broker refuses."""
        places = self._after(batch)
        try:
            if places:
                self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            why = said(error.args[0], self._config, self._heard)
            raise SourceError(
                f"the letters were sent, but progress could not be committed ({why}); "
                "running the command again will resend them"
            ) from None

    def commit_within(self, producer: Producer, batch: Iterable[Any]) -> None:
        """Commit that *batch* is done in the transaction of *producer*."""
        producer.send_offsets_to_transaction(self._after(batch), self._consumer.consumer_group_metadata(), REQUEST)

    def was_sent(self, letter: DeadLetter) -> bool:
        """Whether the group has sent *letter*: a run with a higher limit reads again what earlier runs skipped."""
        return self._reached[letter.partition].has(letter.offset, letter.replays)

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def _after(self, batch: Iterable[Any]) -> list[TopicPartition]:
        after = {message.partition(): message.offset() + 1 for message in batch}
        for number, offset in after.items():
            self._reached[number].moved(self._max_replays, offset)
        reached = [(number, self._reached[number]) for number in after]
        notes = {number: with_filter(at.note, self._picked) for number, at in reached}
        return [TopicPartition(self._topic, number, at.furthest, metadata=notes[number]) for number, at in reached]

    def _is_wanted(self, message: Any) -> bool:
        return int(message.offset()) < self._ends.get(message.partition(), 0)

    def _left(self, open_: set[int]) -> int:
        """Return an upper bound of the messages that are left; the client would wait for more than that."""
        return max(sum(self._ends[number] - self._at[number] for number in open_), 1)

    def _note(self, message: Any, open_: set[int]) -> None:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name for it
            raise self._trouble(error)
        self._at[message.partition()] = after = message.offset() + (error is None)
        if error is not None or after >= self._ends.get(message.partition(), 0):
            open_.discard(message.partition())

    def _starts(self, *, resume: bool) -> list[TopicPartition]:
        """Return the first offset of each partition that has something to read."""
        found = self._consumer.list_topics(self._topic, REQUEST).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        asked = [TopicPartition(self._topic, number) for number in found.partitions]
        places = [each for each in asked if self._filter.partition in {None, each.partition}]
        starts = (self._start(place) for place in (self._committed(places) if resume else places))
        return [place for place in starts if place.partition in self._ends]

    def _committed(self, places: list[TopicPartition]) -> list[TopicPartition]:
        """Return the committed offsets; ask again while the coordinator starts."""
        end = self._clock.monotonic() + REQUEST
        while True:
            found = []
            try:
                found = self._consumer.committed(places, REQUEST)
                errors = [place.error for place in found if place.error is not None]
            except KafkaException as error:
                errors = [error.args[0]]
            if not errors:  # an error must not read as "nothing committed": that would replay everything again
                return found
            if errors[0].code() not in _STARTING or self._clock.monotonic() > end:
                raise KafkaException(errors[0])
            self._clock.block(_REST)

    def _start(self, place: TopicPartition) -> TopicPartition:
        number, wanted = place.partition, self._filter
        low, high = log_ends(self._consumer, TopicPartition(self._topic, number), REQUEST, self._clock)
        is_new = place.offset > high  # the topic was deleted and created again
        reached = self._reached[number] = Progress() if is_new else Progress(place.offset, place.metadata)
        start = max(reached.start(self._max_replays), low, wanted.first or 0)
        end = high if wanted.last is None else min(high, wanted.last + 1)
        if self._tail is not None:
            start = max(start, end - self._tail)
        if end > start:
            self._ends[number], self._at[number] = end, start
        return TopicPartition(self._topic, number, start)

    def _trouble(self, error: KafkaError) -> SourceError:
        return SourceError(f"cannot read {self._topic!r}: {said(error, self._config, self._heard)}")
