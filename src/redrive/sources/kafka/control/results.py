"""
The results of records on their way to the broker.

Owns the seam between the poller and what makes results durable. `CommittedResults` publishes dead letters and commits
offsets past records that are handled or confirmed in their dead-letter topic; `Transactions` does both in one Kafka
transaction. Used by the control thread only; knows no worker.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from redrive.sources.kafka.health import DeadLetterCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from confluent_kafka import Consumer

    from redrive.sources.kafka.control.commits import Commits
    from redrive.sources.kafka.control.partition import Partition, Partitions
    from redrive.sources.kafka.dead_letters.parked_keys import Parking
    from redrive.sources.kafka.dead_letters.publisher import DeadLetterPublisher
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.record import Assignment, Record

_log = logging.getLogger("redrive.kafka")


class Results(Protocol):
    """Makes the results of records durable."""

    @property
    def last_error(self) -> str:
        """Why the last commit failed, or nothing."""

    @property
    def commit_failures(self) -> int:
        """Commits that failed so far."""

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callbacks that the Kafka consumer needs."""

    def succeeded(self, records: list[Record]) -> None:
        """Take records that were handled."""

    def open(self, consumer: Consumer) -> None:
        """Begin; raise SourceError if that is impossible."""

    def assigned(self, assignments: Collection[Assignment], is_stopping: Callable[[], bool]) -> None:
        """Prepare for new *assignments*, before their first record."""

    def bury(self, event: CompletionEvent) -> None:
        """Take a record that was given up."""

    def poll(self) -> None:
        """Serve reports of the broker, and go on with what is due."""

    def step(self, now: float, *, idle: bool) -> None:
        """Commit, if it is time."""

    def commit(self, partitions: Collection[Partition]) -> None:
        """Commit *partitions* now, and wait for the answer."""

    def forget(self, assignment: Assignment) -> None:
        """Drop what belongs to an assignment that has ended."""

    def close(self) -> None:
        """Close the clients; what is not durable by now runs again elsewhere."""

    def dead_letters(self, now: float) -> DeadLetterCounts:
        """Return what became of dead letters so far."""


class CommittedResults:
    """
    Commits the offsets of records that are done.

    A record that was given up is done once *publisher* has its dead letter confirmed; *parking*, if given, parks its
    key before. Without a publisher it is logged and done.
    """

    def __init__(
        self, partitions: Partitions, commits: Commits, publisher: DeadLetterPublisher | None, parking: Parking | None
    ) -> None:
        self._partitions, self._commits, self._publisher, self._parking = partitions, commits, publisher, parking
        self._consumer: Consumer

    @property
    def last_error(self) -> str:
        """Why the last commit failed, or nothing."""
        return self._commits.last_error

    @property
    def commit_failures(self) -> int:
        """Commits that failed so far."""
        return self._commits.failures

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callback for answers to commits."""
        return {"on_commit": self._commits.answered}

    def open(self, consumer: Consumer) -> None:
        """Commit through *consumer* from now on."""
        self._consumer = consumer

    def assigned(self, assignments: Collection[Assignment], is_stopping: Callable[[], bool]) -> None:
        """Read which keys are parked."""
        if self._parking is not None:
            self._parking.assigned(assignments, is_stopping)

    def succeeded(self, records: list[Record]) -> None:
        """Note that *records* are done."""
        self._partitions.complete_all(records)

    def bury(self, event: CompletionEvent) -> None:
        """Publish the dead letter of *event*."""
        if self._parking is not None:
            self._parking.bury(event)
        elif self._publisher is not None:
            self._publisher.publish(event)
        else:
            log_given_up(event)
            self.succeeded([event.record])

    def poll(self) -> None:
        """Serve delivery reports, and publish again what is due."""
        if self._publisher is not None:
            self._publisher.poll()
        if self._parking is not None:
            self._parking.poll()

    def step(self, now: float, *, idle: bool) -> None:
        """Commit, if it is time and something has moved."""
        self._commits.step(self._consumer, self._partitions.all, now, idle=idle)

    def commit(self, partitions: Collection[Partition]) -> None:
        """Commit *partitions* now, and wait for the answer."""
        self._commits.now(self._consumer, partitions)

    def forget(self, assignment: Assignment) -> None:
        """Drop the dead letters of an assignment that has ended."""
        if self._publisher is not None:
            self._publisher.forget(assignment)
        if self._parking is not None:
            self._parking.forget(assignment)

    def close(self) -> None:
        """Close the producers."""
        if self._publisher is not None:
            self._publisher.close()
        if self._parking is not None:
            self._parking.close()

    def dead_letters(self, now: float) -> DeadLetterCounts:
        """Return what became of dead letters so far."""
        return DeadLetterCounts() if self._publisher is None else self._publisher.counts(now)


def log_given_up(event: CompletionEvent) -> None:
    """Log a record that is given up where there is no dead-letter topic."""
    form = "%s is given up after attempt %d and, without a dead-letter topic, committed: %s"
    _log.error(form, repr(event.record), event.attempt, event.error)
