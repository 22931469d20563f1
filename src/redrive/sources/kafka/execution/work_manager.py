"""
From received records to completions.

Owns the way between the poller and an execution engine: records enter their chains, the first of each chain is
submitted, and completions go back in batches. Everything here runs on the event loop's thread. Knows no Kafka
client.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from redrive.sources.kafka.execution.ordering import Chains

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redrive.signals.otel import OpenTelemetry
    from redrive.sources.kafka.config_checks import Ordering
    from redrive.sources.kafka.execution.engine import Broke, ExecutionEngine
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.record import Assignment, Record

_log = logging.getLogger("redrive.kafka")
_APART = 0.005  # seconds between two hand-overs; each costs both threads as much as several records
_QUICKEST = 400_000  # records a second; more than any worker handles


class Work(Protocol):
    """What runs records. The control thread calls it; every call returns at once."""

    def take(self, records: list[Record]) -> None:
        """Schedule *records*."""

    def take_isolated(self, records: list[Record]) -> None:
        """Schedule *records*, which may kill the process that runs them, isolated from others."""

    @property
    def retries(self) -> int:
        """Tries that failed and were, or will be, repeated."""

    def give_up(self, event: CompletionEvent) -> None:
        """End a record with *event*, unless it has ended."""

    def revoke(self, assignment: Assignment) -> None:
        """Start nothing more of *assignment*; report through `completions` how many records were dropped."""


class WorkManager:
    """
    Schedules records on *engine* in the order asked for.

    *deliver* gets the completions, in lists; each record comes back in exactly one of them, unless its partition
    was revoked before it started. *suspects*, if given, runs records that may kill the process. *room* is the buffer
    size; with a small buffer, completions are flushed more often. *broke* gets errors that are not the worker's.
    """

    def __init__(
        self,
        engine: ExecutionEngine,
        ordering: Ordering,
        deliver: Callable[[list[CompletionEvent]], None],
        *,
        suspects: ExecutionEngine | None = None,
        room: int = 20_000,
        broke: Broke | None = None,
    ) -> None:
        self._apart = min(_APART, room / _QUICKEST)
        self.engine, self._suspects = engine, suspects or engine
        self.chains = Chains(ordering)
        self._deliver = deliver
        self._events: list[CompletionEvent] = []
        self._handed_over = 0.0  # when, by the event loop's clock
        for each in {engine, self._suspects}:
            each.connect(self._completed, broke)

    def trace(self, tracing: OpenTelemetry, group: str) -> None:
        """Put a span around each try from now on."""
        for each in {self.engine, self._suspects}:
            each.trace(tracing, group)

    def take(self, records: Iterable[Record]) -> None:
        """Schedule *records*, which are in order within each partition."""
        self.engine.submit(self.chains.enter(records))

    def take_isolated(self, records: Iterable[Record]) -> None:
        """Schedule *records*, which may kill the process that runs them, on the engine for suspects."""
        self._suspects.submit(self.chains.enter(records))

    def revoke(self, assignment: Assignment) -> int:
        """Start nothing more of *assignment*; return how many of its records will have no completion."""
        dropped = self.chains.close(assignment) + self.engine.revoke(assignment)
        dropped += self._suspects.revoke(assignment) if self._suspects is not self.engine else 0
        self._flush()
        return dropped

    def give_up(self, event: CompletionEvent) -> None:
        """End the record of *event* with it, unless it has ended; what its worker still does is ignored."""
        record = event.record
        if record.ended or record.assignment.leaving:
            return
        _log.error("%s is given up while its worker runs: %s", repr(record), event.error)
        self.engine.forget(record)
        self._suspects.forget(record)
        follower = self._completed(event)
        if follower is not None:
            self.engine.submit([follower])

    async def close(self, grace: float) -> None:
        """Stop within *grace* seconds; what has not run is delivered as revoked."""
        await self.engine.close(grace)
        await self._suspects.close(grace)
        self._flush()

    def _completed(self, event: CompletionEvent) -> Record | None:
        """Keep *event* for the next hand-over; return the next record of the chain."""
        record = event.record
        if record.ended:  # it was given up before, and its chain has moved on
            return None
        record.ended = True
        follower = self.chains.leave(record)
        if not self._events:
            self._hand_over_soon()
        self._events.append(event)
        return follower

    def _keep(self, event: CompletionEvent) -> None:
        """Keep *event*, whose record is in no chain, for the next hand-over."""
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
