"""
The lanes of a pipeline, as an operator reads them: the DLQ and quarantine topics of its nodes.

Owns reading a lane up to the end that it has at the start, and the ledger of what was sent away from it, which is
kept as the commits of a consumer group that no consumer joins. Blocks; for commands and threads. Knows no graph.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from redrive.errors import SourceError
from redrive.sources.kafka.client.errors import Heard, said
from redrive.sources.kafka.client.settings import reader_settings
from redrive.sources.kafka.replay.log_ends import log_ends
from redrive.sources.kafka.replay.reader import REQUEST, Reader
from redrive.sources.pipeline.admin.lanes.lane_letter import letter_in
from redrive.sources.pipeline.admin.lanes.sent_letters import SentLetters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from redrive.sources.kafka.config import KafkaConfig
    from redrive.sources.pipeline.admin.lanes.lane_letter import LaneLetter

_BATCH = 500
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001 - the client's own


class LaneLedger:
    """What operators have sent away from the lane *topic*; a topic that does not exist is an empty lane."""

    def __init__(self, kafka: KafkaConfig, topic: str) -> None:
        self.topic, self._kafka, self._heard = topic, kafka, Heard()
        self._client = Consumer({**reader_settings(kafka, f"redrive-lane-{topic}"), "error_cb": self._heard})
        self._ends: dict[int, int] = {}
        self._sent: dict[int, SentLetters] = {}
        try:
            self._sent = self._read()
        except KafkaException as error:
            self._client.close()
            raise SourceError(f"cannot read the lane {topic!r}: {self._said(error)}") from None

    def has(self, letter: LaneLetter) -> bool:
        """Whether *letter* was sent away before."""
        return letter.partition in self._sent and self._sent[letter.partition].has(letter.offset)

    def has_now(self, letter: LaneLetter) -> bool:
        """Whether *letter* was sent away, also by another operator since this ledger was read. Raise SourceError."""
        try:
            (place,) = self._client.committed([TopicPartition(self.topic, letter.partition)], REQUEST)
            self._sent.setdefault(letter.partition, SentLetters()).merge(self._of(place))
        except KafkaException as error:
            raise SourceError(f"cannot read what was sent from {self.topic!r}: {self._said(error)}") from None
        return self.has(letter)

    @property
    def waiting(self) -> int:
        """How many records of the lane are not sent; offsets of transactions' markers count too."""
        return sum(end - sent.count(end) for end, sent in self._pairs()) - self._gone

    @property
    def exists(self) -> bool:
        """Whether there is such a topic."""
        return bool(self._sent)

    def add(self, letters: Iterable[LaneLetter]) -> bool:
        """Commit that *letters* are sent; return whether all of what is known could be noted. Raise SourceError."""
        touched = set[int]()
        for letter in letters:  # one may stand in a partition that the topic got since this ledger was read
            self._sent.setdefault(letter.partition, SentLetters()).add([letter.offset])
            touched.add(letter.partition)
        try:
            for number, found in self._read().items():  # another operator may have sent letters meanwhile
                self._sent.setdefault(number, found).merge(found)
            return self._commit(touched)
        except KafkaException as error:
            why = self._said(error)
            raise SourceError(
                f"the letters of {self.topic!r} were sent, but that could not be noted ({why}); "
                "running the command again sends some of them again"
            ) from None

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    # ------------------------------------------------------------------ the group's commits

    def _read(self) -> dict[int, SentLetters]:
        known = self._client.list_topics(self.topic, REQUEST).topics[self.topic]
        if known.error is not None:
            if known.error.code() in _UNKNOWN:
                return {}
            raise KafkaException(known.error)
        places = [TopicPartition(self.topic, number) for number in known.partitions]
        committed = {place.partition: place for place in self._client.committed(places, REQUEST)}
        return {place.partition: self._of(committed[place.partition]) for place in places}

    def _of(self, place: TopicPartition) -> SentLetters:
        if place.error is not None:
            raise KafkaException(place.error)
        low, high = log_ends(self._client, TopicPartition(self.topic, place.partition), REQUEST)
        self._ends[place.partition] = high
        return SentLetters(low, high, offset=place.offset, text=place.metadata)

    def _commit(self, numbers: set[int]) -> bool:
        notes = {number: self._sent[number].note for number in numbers}
        places = [TopicPartition(self.topic, number, note.offset, metadata=note.text) for number, note in notes.items()]
        if places:
            self._client.commit(offsets=places, asynchronous=False)
        return all(note.is_whole for note in notes.values())

    def _pairs(self) -> Iterator[tuple[int, SentLetters]]:
        return ((self._ends[number], sent) for number, sent in self._sent.items())

    @property
    def _gone(self) -> int:
        return sum(sent.low for sent in self._sent.values())

    def _said(self, error: KafkaException) -> str:
        return said(error.args[0], self._kafka, self._heard)


def letters_of(kafka: KafkaConfig, ledger: LaneLedger) -> Iterator[list[LaneLetter]]:
    """Yield the letters of a lane that were not sent away, in batches, up to the end that the lane has now."""
    if not ledger.exists:
        return
    with closing(Reader(kafka, ledger.topic, f"redrive-lane-{ledger.topic}", resume=False)) as reader:
        for batch in reader.batches(_BATCH):
            letters = [letter for record in batch if not ledger.has(letter := letter_in(record))]
            if letters:
                yield letters
