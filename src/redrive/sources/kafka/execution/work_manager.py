"""
From received records to completions.

Owns the way between the poller and an execution engine: records enter their lanes, those whose
turn it is are submitted, and completions go back in batches, some time apart from each other.
Everything here happens on the event loop's thread. Knows no Kafka client.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from redrive.sources.kafka.execution.ordering import Lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redrive.sources.kafka.config import Ordering
    from redrive.sources.kafka.execution.engine import ExecutionEngine
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.record import Assignment, Record

_log = logging.getLogger("redrive.kafka")
_APART = 0.005  # seconds between two hand-overs; each costs both threads as much as several records
_QUICKEST = 400_000  # records a second that no worker gets through


class Work(Protocol):
    """Where records go. Called from the control thread; returns at once."""

    def take(self, records: list[Record]) -> None:
        """Schedule *records*."""

    def take_alone(self, records: list[Record]) -> None:
        """Schedule *records*, which may kill whoever runs them."""

    @property
    def retries(self) -> int:
        """How many tries failed and will be, or were, repeated."""

    def give_up(self, event: CompletionEvent) -> None:
        """End a record with *event*, unless it ended meanwhile."""

    def release(self, assignment: Assignment) -> None:
        """Start nothing more of *assignment*; say how many records were dropped through `completions`."""


class WorkManager:
    """
    Schedules records on *engine* in the order asked for.

    *deliver* gets every completion, in lists; each record that was taken comes back in exactly
    one of them, unless its partition was released before its turn came. *suspects*, if given,
    runs those that may kill whoever runs them. *room* is how many records there may be at once: where
    it is small, room that was made is told of sooner.
    """

    def __init__(
        self,
        engine: ExecutionEngine,
        ordering: Ordering,
        deliver: Callable[[list[CompletionEvent]], None],
        *,
        suspects: ExecutionEngine | None = None,
        room: int = 20_000,
    ) -> None:
        self._apart = min(_APART, room / _QUICKEST)
        self.engine, self._suspects = engine, suspects or engine
        self.lanes = Lanes(ordering)
        self._deliver = deliver
        self._events: list[CompletionEvent] = []
        self._handed_over = 0.0  # when, by the event loop's clock
        engine.completed = self._suspects.completed = self._completed

    def take(self, records: Iterable[Record]) -> None:
        """Schedule *records*, which are in the order of their partitions."""
        self.engine.submit(self.lanes.enter(records))

    def take_alone(self, records: Iterable[Record]) -> None:
        """Schedule *records*, which may kill whoever runs them, where they do the least harm."""
        self._suspects.submit(self.lanes.enter(records))

    def release(self, assignment: Assignment) -> int:
        """Start nothing more of *assignment*; return how many of its records will have no completion."""
        dropped = self.lanes.close(assignment) + self.engine.release(assignment)
        dropped += self._suspects.release(assignment) if self._suspects is not self.engine else 0
        self._flush()
        return dropped

    def give_up(self, event: CompletionEvent) -> None:
        """End the record of *event* with it, unless it ended meanwhile; whatever its worker still does is ignored."""
        record = event.record
        if record.ended or record.assignment.leaving:
            return
        _log.error("%s is given up while it is worked on: %s", repr(record), event.error)
        self.engine.forget(record)
        self._suspects.forget(record)
        follower = self._completed(event)
        if follower is not None:
            self.engine.submit([follower])

    async def close(self, grace: float) -> None:
        """Stop, at the latest after *grace* seconds; what has not run is delivered as released."""
        await self.engine.close(grace)
        await self._suspects.close(grace)
        self._flush()

    def _completed(self, event: CompletionEvent) -> Record | None:
        """Keep *event* for the next hand-over; return the record whose turn it is now."""
        record = event.record
        if record.ended:  # it was given up meanwhile, and its lane goes on without it
            return None
        record.ended = True
        follower = self.lanes.leave(record)
        if not self._events:
            self._hand_over_soon()
        self._events.append(event)
        return follower

    def _keep(self, event: CompletionEvent) -> None:
        """Keep *event*, whose record holds no lane, for the next hand-over."""
        if not self._events:
            self._hand_over_soon()
        self._events.append(event)

    def _hand_over_soon(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._handed_over = max(now, self._handed_over + self._apart)
        if self._handed_over > now:
            loop.call_at(self._handed_over, self._flush)
        else:
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        events, self._events = self._events, []
        if events:
            self._deliver(events)
