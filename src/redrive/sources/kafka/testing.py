"""
A Kafka worker driven by hand, for users' tests: no broker, no waiting.

Owns records that a test makes up, and what becomes of them: completions, and dead letters as they would be published.
Engine, order, tries and decisions are the real ones; a wait between two tries ends when the test moves the clock.
Knows no Kafka client and no test framework.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig
from redrive.sources.kafka.dead_letters.codec import codec_of, failed_record
from redrive.sources.kafka.execution.factory import engine_for
from redrive.sources.kafka.execution.work_manager import WorkManager
from redrive.sources.kafka.records.completion import CompletionStatus
from redrive.sources.kafka.records.dead_letter import Header
from redrive.sources.kafka.records.record import Assignment, Record

if TYPE_CHECKING:
    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config_checks import Ordering
    from redrive.sources.kafka.execution.handlers import Worker
    from redrive.sources.kafka.records.completion import CompletionEvent

_GLANCE = 0.001  # real seconds between two looks at a worker that runs
_GROUP = "test"


class MovedClock(Protocol):
    """A clock that a test moves."""

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass."""

    def wall_us(self) -> int:
        """Return the time of day."""

    def monotonic(self) -> float:
        """Return the seconds that have passed."""


class PublishedDeadLetter(msgspec.Struct, frozen=True):
    """A message that the consumer would publish to the dead-letter topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]

    def header(self, name: str) -> str | None:
        """Return the last header of this name as text."""
        found = [value for each, value in self.headers if each == name]
        return None if not found or found[-1] is None else found[-1].decode()


class WorkerDrive:
    """
    A worker that runs when the test says so. Made by `redrive.testing.drive_worker`.

    `clock` is its clock; `completions` and `dead_letters` are the results of its records, in order.
    """

    def __init__(
        self, worker: Worker, clock: Any, *, execution: ExecutionConfig | None, kafka: KafkaConfig | None,
        ordering: Ordering,
    ) -> None:  # fmt: skip
        self.clock: MovedClock = clock
        self.completions: list[CompletionEvent] = []
        self.dead_letters: list[PublishedDeadLetter] = []
        self._kafka = kafka or KafkaConfig()
        its_clock: Clock = clock
        self._engine = engine_for(worker, execution or ExecutionConfig(), clock=its_clock)
        self._work = WorkManager(self._engine, ordering, self._deliver, room=1)
        self._assignments: dict[tuple[str, int], Assignment] = {}
        self._offsets: dict[Assignment, int] = {}
        self._sent = 0

    def send(
        self, value: bytes | None, *, key: bytes | None = None, topic: str = "orders", partition: int = 0,
        headers: tuple[Header, ...] = (),
    ) -> Record:  # fmt: skip
        """Let a record arrive; its worker may start at once."""
        place = self._assignments.setdefault((topic, partition), Assignment(topic, partition, 1))
        offset = self._offsets[place] = self._offsets.get(place, -1) + 1
        record = Record(place, offset, key, value, headers, self.clock.wall_us() // 1000, 1)
        self._sent += 1
        self._work.take([record])
        return record

    async def run_until_idle(self, *, patience: float = 10.0) -> None:
        """
        Run all records to their end; the clock jumps from one retry to the next.

        Raise AssertionError when a worker takes more than *patience* real seconds.
        """
        try:
            async with asyncio.timeout(patience):
                while len(self.completions) < self._sent:
                    self._jump()
                    await asyncio.sleep(_GLANCE)  # workers may run in threads and processes
        except TimeoutError:
            left = self._sent - len(self.completions)
            raise AssertionError(f"{left} records have not ended after {patience:g} real seconds") from None

    async def close(self) -> None:
        """Stop what still runs."""
        await self._work.close(0)

    def _jump(self) -> None:
        due = self._engine.next_due
        if due is not None and not self._engine.running:
            self.clock.advance(max(0.0, due - self.clock.monotonic()))
            self._engine.wake()

    def _deliver(self, events: list[CompletionEvent]) -> None:
        self.completions += events
        if self._kafka.dlq_enabled:
            self.dead_letters += [self._dead(each) for each in events if each.status is CompletionStatus.FAILURE]

    def _dead(self, event: CompletionEvent) -> PublishedDeadLetter:
        now_ms = self.clock.wall_us() // 1000
        failed = failed_record(event, _GROUP, now_ms=now_ms, monotonic=self.clock.monotonic())
        key, value, headers = codec_of(self._kafka).encode(failed)
        return PublishedDeadLetter(self._kafka.dlq_topic(event.topic), key, value, headers)
