"""
Offsets on their way to the broker.

Owns what is committed and when: the watermark of every partition that moved, with the map of
what is done beyond it, one commit under way at a time. What the broker refused was not
committed, and is tried again. Used by the control thread only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from redrive.failpoints import hit
from redrive.sources.kafka.offsets.done_map import LIMIT, write_map
from redrive.sources.kafka.offsets.rice_code import NARROW, WIDE
from redrive.sources.kafka.offsets.start_note import note_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from redrive.sources.kafka.control.partition import Partition

_log = logging.getLogger("redrive.kafka")
_QUICK = 0.05  # seconds between commits when nothing is left to do
_PATIENCE = 30.0  # seconds after which a commit that nobody answers is given up
_SILENCE = 60.0  # seconds for which an error that was logged is not logged again
_LEAST_ROOM = 256  # characters; a broker that allows fewer gets another alphabet, then ever shorter maps
_Key = tuple[str, int]


class Commits:
    """Commits what has moved, at most once in *interval* seconds while work goes on."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._last = 0.0
        self._under_way: dict[_Key, tuple[Partition, tuple[int, str]]] = {}
        self._alphabet, self._limit = WIDE, LIMIT
        self.failures = 0
        self.last_error = ""
        self._told: dict[str, float] = {}  # errors, and when they were logged

    def step(self, consumer: Consumer, partitions: Collection[Partition], now: float, *, idle: bool) -> None:
        """Commit, if it is time to and something has moved."""
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
        """Hear what the broker says to a commit."""
        hit("kafka.after_commit")
        said = {(each.topic, each.partition): each for each in offsets}
        under_way, self._under_way = self._under_way, {}
        for key, (partition, place) in under_way.items():
            answer = said.get(key)
            if error is None and answer is not None and answer.error is None and answer.offset == place[0]:
                partition.committed = place
                self.last_error = ""
            else:
                partition.dirty = True
                self._refused(error or (None if answer is None else answer.error))

    def now(self, consumer: Consumer, partitions: Collection[Partition]) -> None:
        """Commit what has moved and wait for the answer."""
        for partition, _ in self._under_way.values():  # its answer may come, but nobody will look for it
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
        done, note = partition.tracker.done_beyond(), note_of(partition, watermark)
        partition.gaps = len(done)
        return watermark, note + write_map(watermark, done, limit=self._limit - len(note), alphabet=self._alphabet)

    def _refused(self, error: KafkaError | None) -> None:
        self.failures += 1
        self.last_error = "no answer" if error is None else error.str()
        self._tell(self.last_error)
        if error is not None and error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
            self._shorten()

    def _tell(self, why: str) -> None:
        """Log *why*, which may be so many times in a second and for hours, once in a while."""
        self._told = {each: when for each, when in self._told.items() if self._last - when < _SILENCE}
        if why not in self._told:
            self._told[why] = self._last
            _log.warning("offsets were not committed and will be again: %s", why)

    def _shorten(self) -> None:
        """Write smaller maps: this broker allows less than others."""
        self._last = 0.0
        if self._limit // 2 >= _LEAST_ROOM or self._alphabet is NARROW:
            self._limit //= 2
        else:
            self._alphabet = NARROW
