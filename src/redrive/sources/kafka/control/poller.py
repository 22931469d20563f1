"""
Between the broker and the work.

Owns the Kafka consumer and everything that only the control thread may touch. One round takes in completions,
publishes, commits and polls. The work runs elsewhere: records go out through `work.take`, completions come in through
`completions`. No offset is committed past a record that is neither handled nor confirmed in its dead-letter topic.
Knows no worker.
"""

from __future__ import annotations

import logging
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.failpoints import hit
from redrive.sources.kafka import facts
from redrive.sources.kafka.client.errors import is_final, said
from redrive.sources.kafka.client.outage import Outage
from redrive.sources.kafka.client.positions import begin, committed, done_beyond, start_of
from redrive.sources.kafka.client.settings import consumer_settings, is_cooperative
from redrive.sources.kafka.control.assignments import Assignments
from redrive.sources.kafka.control.backpressure import Backpressure, rested
from redrive.sources.kafka.control.crash_loops import CrashLoopGuard
from redrive.sources.kafka.control.flood_gate import FloodGate, HeldRecords
from redrive.sources.kafka.control.partition import Partitions
from redrive.sources.kafka.control.stalls import Stalls
from redrive.sources.kafka.control.status import ConsumerStatus
from redrive.sources.kafka.control.wiring import results_for
from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics, refuse_loops
from redrive.sources.kafka.offsets.start_note import read_note
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus
from redrive.sources.kafka.records.messages import records_of, runs
from redrive.sources.kafka.records.record import Assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redrive.engine.clock import Clock
    from redrive.signals.otel import OpenTelemetry
    from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig
    from redrive.sources.kafka.control.partition import Partition
    from redrive.sources.kafka.dead_letters.parked_keys import ParkedKeys
    from redrive.sources.kafka.execution.work_manager import Work
    from redrive.sources.kafka.health import Counts, Health, PartitionStatus
    from redrive.sources.kafka.records.record import Record

_log = logging.getLogger("redrive.kafka")
_SUCCESS, _FAILURE = CompletionStatus.SUCCESS, CompletionStatus.FAILURE
_IDLE, _BUSY = 0.05, 0.01  # seconds that a poll may wait
_GLANCE = 1.0  # seconds between two updates of the status
Revoked = tuple[Assignment, int]  # and how many of its records will have no completion
# Not a SimpleQueue: its get(timeout=…) may wait for ever, with a negative timeout, if it ends in an unlucky moment.
Completions = Queue[list[CompletionEvent] | Revoked]


class BrokerPoller:
    """
    Consumes *topics* as a member of *group*; all methods belong to one thread, the control thread.

    Call `open`, then `round` again and again, then `close`; while a round waits for a broker it asks *is_stopping*
    whether to go on. Records go to *work*. `completions` is a queue into which any thread puts lists of
    CompletionEvents and, for each revoked assignment, an (assignment, number of records dropped) pair. `health`,
    `counts` and `partitions` are brought up to date every second. *parked* are the keys that the work manager parks.
    """

    def __init__(
        self,
        topics: Sequence[str],
        group: str,
        kafka: KafkaConfig,
        execution: ExecutionConfig,
        work: Work,
        *,
        completions: Completions | None = None,
        parked: ParkedKeys | None = None,
        clock: Clock | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
        tracing: OpenTelemetry | None = None,
    ) -> None:
        self.completions = Queue() if completions is None else completions
        self._topics, self._group, self._kafka, self._execution = list(topics), group, kafka, execution
        self._work, self._clock, self._is_stopping = work, clock or SystemClock(), is_stopping
        self._partitions = Partitions()
        self._buffered = 0  # records received and not done, as last counted
        self._backpressure = Backpressure(kafka.queue_max_messages, kafka.message_cache_max_bytes)
        gated = kafka.dlq_enabled and not kafka.dlq_park_keys  # parked records fail without a try
        self._gate = FloodGate(kafka.dlq_flood_limit if gated else 0)
        self._held = HeldRecords(self._gate, kafka.dlq_flood_cooldown_ms / 1000, self._clock)
        self._stalls = Stalls(kafka.stall_policy, kafka.stall_after_ms / 1000, work.give_up)
        self._outage = Outage(kafka, self._clock)
        self._dlq_topics = DeadLetterTopics(kafka) if kafka.dlq_enabled else None
        self._results = results_for(
            kafka, group, execution.policy, self._dlq_topics, self._clock,
            partitions=self._partitions, halts=self, again=work.take, parked=parked, tracing=tracing,
        )  # fmt: skip
        self._crash_loops = CrashLoopGuard(
            0 if kafka.exactly_once else kafka.crash_loop_limit, execution.max_in_flight, self._results.commit,
            self._bury, work.take_isolated,
        )  # fmt: skip
        self._assignments = Assignments(
            self._partitions, self._results, self._crash_loops, work, self._clock, is_stopping
        )
        self._status = ConsumerStatus(
            self._partitions, self._results, self._dlq_topics, self._stalls,
            gate=self._gate, held=self._held, outage=self._outage,
        )  # fmt: skip
        self._settings = consumer_settings(kafka, group, self._topics)
        self._consumer = Consumer({"error_cb": self._outage, **self._settings, **self._results.callbacks})

    @property
    def counts(self) -> Counts:
        """What the consumer has done so far."""
        return self._status.counts

    @property
    def health(self) -> Health:
        """Green, degraded or red, and the reasons."""
        return self._status.health

    @property
    def partitions(self) -> tuple[PartitionStatus, ...]:
        """The status of each assigned partition."""
        return self._status.partitions

    @property
    def assigned(self) -> int:
        """How many partitions are assigned now."""
        return len(self._partitions)

    # ------------------------------------------------------------------ life

    def open(self) -> None:
        """Join the group; raise SourceError if dead letters would have nowhere to go."""
        if self._dlq_topics is not None:
            self._dlq_topics.prepare(topic for topic in self._topics if not topic.startswith("^"))
        self._results.open(self._consumer)
        self._consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def round(self) -> None:
        """Do one round; waits a moment if there is nothing to do."""
        self.take_in()
        now, partitions = self._clock.monotonic(), self._partitions.all
        self._buffered = sum([each.tracker.open for each in partitions])
        if again := self._held.pop_due(now):
            self._work.take(again)
        if self._gate.is_shut and not self._buffered:  # the held records were revoked: none is left to try
            self._gate.open_a_little()
        if free := self._crash_loops.step():
            self._work.take(free)
        self._backpressure.step(self._consumer, partitions, now, shut=self._gate.is_shut)
        self._results.step(now, idle=not self._buffered)
        if now - self._status.looked_at >= _GLANCE:
            if self._dlq_topics is not None:
                self._dlq_topics.prepare_in_time()
            self._outage.look(self._consumer)
            self._look()
            self._stalls.act(partitions, now)
        self._receive()

    def take_in(self, wait: float = 0.0) -> None:
        """Take in completions, waiting up to *wait* seconds for the first; let dead letters go on."""
        try:
            news = self.completions.get(timeout=wait) if wait else self.completions.get_nowait()
            while True:
                self._take_in(news)
                news = self.completions.get_nowait()
        except Empty:
            pass
        self._results.poll()

    def drain(self, partitions: list[Partition], seconds: float) -> None:
        """Start nothing more of *partitions*, wait for running records, commit, and then end the assignments."""
        leaving = {partition.assignment for partition in partitions}
        self._partitions.drop(self._held.drop(leaving))
        self._crash_loops.drop(leaving)
        for assignment in leaving:
            self._work.revoke(assignment)
        end = self._clock.monotonic() + seconds
        while any(each.unresolved > 0 for each in partitions) and self._clock.monotonic() < end:
            self.take_in(wait=0.02)
            self._partitions.drop(self._held.drop(leaving))  # records that failed just now belong to the next owner too
        self.take_in()
        for partition in partitions:
            partition.dirty, partition.noted = partition.dirty or partition.noted, False  # a clean end leaves no note
        self._results.commit(partitions)
        for partition in partitions:
            self._assignments.end(partition)

    def close(self) -> None:
        """Drain everything, commit, leave the group."""
        try:
            self.drain(list(self._partitions.all), self._execution.shutdown_drain_timeout_ms / 1000)
        finally:
            self._look()
            self._consumer.close()
            self._results.close()

    # ------------------------------------------------------------------ completions

    def _take_in(self, news: list[CompletionEvent] | Revoked) -> None:
        if isinstance(news, tuple):
            self._partitions.dropped(*news)
            return
        gate, counts, handled = self._gate, self.counts, []
        for event in news:
            record = event.record
            if record.assignment.closed:
                counts.late += 1
            elif event.status is _SUCCESS:
                handled.append(record)
                if event.attempt > 1:
                    counts.again[event.attempt] += 1
                if gate.in_a_row:
                    gate.succeeded()
            elif event.status is _FAILURE:
                self._bury(event)
            else:
                self._partitions.dropped(record.assignment, 1)
        counts.processed += len(handled)
        self._results.succeeded(handled)

    def _bury(self, event: CompletionEvent) -> None:
        if self._gate.holds(event.disposition):
            self._held.hold(event)
            return
        self.counts.failed += 1
        if event.attempt > 1:
            self.counts.again[event.attempt] += 1
        self._results.bury(event)

    # ------------------------------------------------------------------ records

    def _receive(self) -> None:
        if self._buffered >= self._kafka.queue_max_messages and self._backpressure.must_wait:
            if not rested(self._buffered):  # there is room in a moment; a pause would discard what was prefetched
                self.take_in(wait=_BUSY)
            return
        messages = self._consumer.consume(self._kafka.poll_batch_size, 0)
        if not messages:
            hurry = self._buffered or any(each.dirty for each in self._partitions.all)
            first = self._consumer.poll(_BUSY if hurry else _IDLE)
            if first is None:
                return
            messages = [first, *self._consumer.consume(self._kafka.poll_batch_size - 1, 0)]
        hit("kafka.after_poll")
        records = self._records(messages)
        self._stalls.admit(records)
        records = self._crash_loops.admit(records)
        if records:
            self._work.take(records)
            hit("kafka.after_dispatch")

    def _records(self, messages: list[Any]) -> list[Record]:
        """Note what was received; return the records to run."""
        records: list[Record] = []
        for run in runs(messages):
            first = run[0]
            partition = self._partitions.at(first.topic(), first.partition())
            error = first.error()
            if error is not None or partition is None:
                self._odd(first, error, partition)
                continue
            if first.offset() < (partition.tracker.next_offset or 0):
                partition = self._assignments.rewind(partition)
            fresh = partition.receive(records_of(run, partition.assignment))
            self.counts.received += len(run)
            self.counts.skipped += len(run) - len(fresh)
            records += fresh
        self._buffered += len(records)
        return records

    def _odd(self, message: Message, error: KafkaError | None, partition: Partition | None) -> None:
        if error is None:
            return  # of a partition that was just revoked
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name for it
            if partition is not None:
                partition.tracker.reached(message.offset() or 0)
                partition.dirty = True
        elif is_final(error):
            what = partition.name if partition is not None else repr(message.topic() or self._topics)
            raise SourceError(f"cannot consume {what}: {said(error, self._kafka)}")
        else:
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and message.topic():
                self._status.absent.add(message.topic() or "")
            _log.warning("the Kafka client reports: %s", error.str())

    # ------------------------------------------------------------------ rebalances

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        topics = {place.topic for place in places}
        refuse_loops(self._kafka, topics | self._partitions.topics)
        found = committed(self._consumer, places, self._clock, self._is_stopping)
        self._status.absent -= topics
        for place in found:
            restored = done_beyond(self._consumer, place, self._clock, self._is_stopping)
            partition = self._assignments.begin(place.topic, place.partition, place.offset, restored)
            self._crash_loops.assigned(partition, read_note(place.metadata)[0])
        self._results.assigned([each.assignment for each in self._assignments.of(places)], self._is_stopping)
        starts = [start_of(place, str(self._settings["auto.offset.reset"])) for place in found]
        begin(consumer, starts, cooperative=is_cooperative(self._settings))
        if self._dlq_topics is not None:
            self._dlq_topics.prepare_in_time(topics)
        if places or not self.assigned:
            facts.tell_assigned(self._group, places, self.assigned)

    def _revoked(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        taken = self._assignments.of(places)
        self.drain(taken, self._execution.max_revoke_grace_ms / 1000)
        facts.tell_revoked(self._group, [each.assignment for each in taken], self.assigned)

    def _lost(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        """End at once: another consumer may have them, and a commit could only do harm."""
        taken = self._assignments.of(places)
        for partition in taken:
            self._assignments.lose(partition)
        facts.tell_revoked(self._group, [each.assignment for each in taken], self.assigned, lost=True)

    # ------------------------------------------------------------------ status

    def _look(self) -> None:
        self._status.look(self._consumer, self._clock.monotonic(), retries=self._work.retries)

    def halt(self, assignment: Assignment, why: str) -> None:
        """Note that nothing can be committed past a dead letter of *assignment*."""
        partition = self._partitions.of(assignment)
        if partition is not None and not partition.halted:
            partition.halted = why
            _log.error("%s is halted, nothing is committed past its dead letter: %s", partition.name, why)
            self._look()

    def resume(self, assignment: Assignment) -> None:
        """Note that the broker takes the dead letters of *assignment* again."""
        partition = self._partitions.of(assignment)
        if partition is not None and partition.halted:
            partition.halted = ""
            _log.warning("%s goes on: the broker takes its dead letters again", partition.name)
            self._look()
