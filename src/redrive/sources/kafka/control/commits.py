"""
Offset commits.

Owns what is committed and when: the watermark of every partition that moved, with the map of what is done beyond
it; one commit at a time. A commit that the broker refuses is tried again. Used by the control thread only; knows no
record.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from redrive.failpoints import hit
from redrive.sources.kafka.offsets.done_map import MapRoom, write_map

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from redrive.sources.kafka.control.partition import Partition

_log = logging.getLogger("redrive.kafka")
_QUICK = 0.05  # seconds between commits when nothing is left to do
_PATIENCE = 30.0  # seconds to wait for the answer to a commit
_SILENCE = 60.0  # seconds for which an error that was logged is not logged again
_Key = tuple[str, int]


class Commits:
    """Commits partitions that have moved, at most once in *interval* seconds while there is work."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._last = 0.0
        self._under_way: dict[_Key, tuple[Partition, tuple[int, str]]] = {}
        self._room = MapRoom()
        self.failures = 0
        self.last_error = ""
        self._logged: dict[str, float] = {}  # errors, and when they were logged

    def step(self, consumer: Consumer, partitions: Collection[Partition], now: float, *, idle: bool) -> None:
        """Commit, if it is time and something has moved."""
        if now - self._last < (min(_QUICK, self._interval) if idle else self._interval):
            return
        if self._under_way and now - self._last < _PATIENCE:
            return
        offsets = self._offsets(partitions)
        if not offsets:
            return
        self._last = now
        hit("kafka.before_commit")
        try:
            consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self.answered(error.args[0], ())

    def answered(self, error: KafkaError | None, offsets: Iterable[TopicPartition]) -> None:
        """Take in the broker's answer to a commit."""
        hit("kafka.after_commit")
        answers = {(each.topic, each.partition): each for each in offsets}
        under_way, self._under_way = self._under_way, {}
        for key, (partition, place) in under_way.items():
            answer = answers.get(key)
            if error is None and answer is not None and answer.error is None and answer.offset == place[0]:
                partition.committed = place
                self.last_error = ""
            else:
                partition.dirty = True
                self._refused(error or (None if answer is None else answer.error))

    def now(self, consumer: Consumer, partitions: Collection[Partition]) -> None:
        """Commit what has moved and wait for the answer."""
        for partition, _ in self._under_way.values():  # its answer will be ignored
            partition.dirty = True
        self._under_way = {}
        offsets = self._offsets(partitions)
        if not offsets:
            return
        hit("kafka.before_last_commit")
        try:
            self.answered(None, consumer.commit(offsets=offsets, asynchronous=False) or ())
        except KafkaException as error:
            self.answered(error.args[0], ())

    def _offsets(self, partitions: Iterable[Partition]) -> list[TopicPartition]:
        found = []
        for partition in partitions:
            if not partition.dirty:
                continue
            partition.dirty = False
            place = self._place(partition)
            if place is not None and place != partition.committed:
                owner = partition.assignment
                self._under_way[owner.topic, owner.partition] = (partition, place)
                found.append(TopicPartition(owner.topic, owner.partition, place[0], place[1]))
        return found

    def _place(self, partition: Partition) -> tuple[int, str] | None:
        watermark = partition.tracker.watermark
        if watermark is None:
            return None
        done, note, room = partition.tracker.done_beyond(), partition.note(watermark), self._room
        partition.gaps = len(done)
        return watermark, note + write_map(watermark, done, limit=room.limit - len(note), alphabet=room.alphabet)

    def _refused(self, error: KafkaError | None) -> None:
        self.failures += 1
        self.last_error = "the broker did not answer" if error is None else error.str()
        self._log(self.last_error)
        if error is not None and error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
            self._last = 0.0
            self._room.shrink()

    def _log(self, why: str) -> None:
        """Log *why* once a minute: it may come many times a second, for hours."""
        self._logged = {each: when for each, when in self._logged.items() if self._last - when < _SILENCE}
        if why not in self._logged:
            self._logged[why] = self._last
            _log.warning("offsets were not committed, will retry: %s", why)
