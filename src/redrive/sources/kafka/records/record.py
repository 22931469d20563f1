"""
The record that a worker gets.

Owns the record: a message as it was received, and how often it was tried. One object goes from poll to commit.
Knows no Kafka client, no clock and no rule.
"""

from __future__ import annotations

import msgspec

from redrive.sources.kafka.records.output import Output

Headers = tuple[tuple[str, bytes | None], ...]
NO_TIMESTAMP, CREATE_TIME, LOG_APPEND_TIME = 0, 1, 2
TIMESTAMP_TYPES = {NO_TIMESTAMP: "none", CREATE_TIME: "create", LOG_APPEND_TIME: "append"}


class Assignment:
    """
    One partition while it is assigned to this consumer, from one rebalance to the next.

    *epoch* grows with every assignment in the consumer's life, so no two assignments are equal. Once it is
    `leaving`, none of its records starts. Once it is `closed`, results of its records are ignored. Compared by
    identity, so that each owner of something per assignment can keep it in a dict.
    """

    __slots__ = ("closed", "epoch", "leaving", "partition", "topic")

    def __init__(self, topic: str, partition: int, epoch: int) -> None:
        self.topic, self.partition, self.epoch = topic, partition, epoch
        self.leaving = False
        self.closed = False

    def __repr__(self) -> str:
        return f"Assignment({self.topic}[{self.partition}], epoch {self.epoch}{', closed' if self.closed else ''})"


class Record(msgspec.Struct, gc=False, eq=False):
    """
    A message: `topic`, `partition`, `offset`, `key`, `value`, `headers`, `timestamp` (ms), and the `attempt`.

    What follows *timestamp_type* is kept by the consumer.
    """

    # Not tracked by the cyclic garbage collector: there are many records, and none refers back to itself.
    assignment: Assignment
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers | list[tuple[str, bytes | None]] = ()
    timestamp: int = 0
    timestamp_type: int = NO_TIMESTAMP
    size: int = 0  # bytes, as the poller counted them
    attempts: int = 0  # tries begun
    losses: int = 0  # tries lost with their process
    began: float = 0.0  # when the first try began, by the engine's clock
    first_failed: float = 0.0  # when a try first failed, by the same clock
    done: bool = False  # handled or safely dead-lettered; kept by the tracker
    ended: bool = False  # its completion was reported; later results are ignored
    iteration: int = 0  # of the event loop, in which its latest try began; kept by the engine
    outputs: tuple[Output, ...] = ()  # what its worker sends on, in the exactly-once mode
    trace: dict[str, str] | None = None  # the trace of its latest try, if tries are traced

    @property
    def topic(self) -> str:
        """The topic it was received from."""
        return self.assignment.topic

    @property
    def partition(self) -> int:
        """The partition it was received from."""
        return self.assignment.partition

    @property
    def epoch(self) -> int:
        """The assignment of the partition in which it was received."""
        return self.assignment.epoch

    @property
    def attempt(self) -> int:
        """The number of this try, counted from 1."""
        return self.attempts

    def __repr__(self) -> str:
        """Return its position, never its content."""
        return f"Record({self.topic}[{self.partition}]@{self.offset}, attempt {self.attempts})"
