"""
What the worker gets, and what is known of it on its way.

Owns the record: a message as it came, bytes and all, and how often it was tried. One object
goes from the poll to the commit. Knows no Kafka client, no clock and no rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from redrive.sources.kafka.execution.ordering import Lane

Headers = tuple[tuple[str, bytes | None], ...]
NO_TIMESTAMP, CREATE_TIME, LOG_APPEND_TIME = 0, 1, 2
TIMESTAMP_TYPES = {NO_TIMESTAMP: "none", CREATE_TIME: "create", LOG_APPEND_TIME: "append"}


class Assignment:
    """
    One partition while it is ours, from one rebalance to the next.

    *epoch* grows with every assignment of the consumer's life, so no two are ever mistaken
    for each other. Once it is `leaving` nothing of it starts any more; once it is `closed`,
    results of its records change nothing any more.
    """

    __slots__ = ("closed", "epoch", "lanes", "leaving", "parked", "partition", "state", "topic")

    def __init__(self, topic: str, partition: int, epoch: int) -> None:
        self.topic, self.partition, self.epoch = topic, partition, epoch
        self.leaving = False
        self.closed = False
        self.lanes: dict[object, Lane] = {}  # kept by the ordering
        self.parked: set[bytes | None] = set()  # keys that wait behind a dead letter, where that is asked for
        self.state: Any = None  # kept by the poller

    def __repr__(self) -> str:
        return f"Assignment({self.topic}[{self.partition}], epoch {self.epoch}{', closed' if self.closed else ''})"


class Record(msgspec.Struct, gc=False, eq=False):
    """
    A message: `topic`, `partition`, `offset`, `key`, `value`, `headers`, `timestamp` (ms), and the `attempt`.

    What follows *timestamp_type* is kept by the consumer.
    """

    # Not seen by the cyclic collector: there are many of them, and nothing in one refers back to it.
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
    first_failed: float = 0.0  # … and when one first failed
    done: bool = False  # handled or safely dead-lettered; kept by the tracker
    ended: bool = False  # whether its completion was told; what comes later changes nothing
    turn: int = 0  # of the event loop, in which its latest try began; kept by the engine
    outputs: tuple[Any, ...] = ()  # what its worker sends on, in the exactly-once mode

    @property
    def topic(self) -> str:
        """Where it comes from."""
        return self.assignment.topic

    @property
    def partition(self) -> int:
        """Which partition it comes from."""
        return self.assignment.partition

    @property
    def epoch(self) -> int:
        """Which assignment of the partition it was received in."""
        return self.assignment.epoch

    @property
    def attempt(self) -> int:
        """Which try this is, counted from 1."""
        return self.attempts

    def __repr__(self) -> str:
        """Return where it stands; never what it carries."""
        return f"Record({self.topic}[{self.partition}]@{self.offset}, attempt {self.attempts})"
