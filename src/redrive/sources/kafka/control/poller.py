"""
Between the broker and the work.

Owns the Kafka consumer, and everything that only one thread may touch: the trackers, the
commits, the dead letters. One turn hears completions, publishes, commits, polls. The work
itself happens elsewhere: records go out through `work.take`, completions come in through
`completions`. No offset is committed past a record that is neither handled nor confirmed in
its dead-letter topic.
"""

from __future__ import annotations

import logging
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.failpoints import hit
from redrive.sources.kafka import facts
from redrive.sources.kafka.client.errors import is_final, said
from redrive.sources.kafka.client.outage import Outage
from redrive.sources.kafka.client.positions import begin, committed, done_beyond, start_of
from redrive.sources.kafka.client.settings import consumer_settings, is_cooperative
from redrive.sources.kafka.control.backpressure import Flow, rested
from redrive.sources.kafka.control.commits import Commits
from redrive.sources.kafka.control.crash_loops import Quarantine
from redrive.sources.kafka.control.flood_gate import FloodGate
from redrive.sources.kafka.control.partition import Partition
from redrive.sources.kafka.control.stalls import Stalls
from redrive.sources.kafka.control.transactions import Transactions
from redrive.sources.kafka.dead_letters.parked_keys import Parking
from redrive.sources.kafka.dead_letters.publisher import DeadLetterPublisher
from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics, refuse_loops
from redrive.sources.kafka.health import Counts, Health, Standing, judge
from redrive.sources.kafka.offsets.start_note import read_note
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus
from redrive.sources.kafka.records.messages import records_of, runs
from redrive.sources.kafka.records.record import Assignment, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig
    from redrive.sources.kafka.execution.work_manager import Work

_log = logging.getLogger("redrive.kafka")
_SUCCESS, _FAILURE = CompletionStatus.SUCCESS, CompletionStatus.FAILURE
_IDLE, _BUSY = 0.05, 0.01  # seconds that a poll may wait
_GLANCE = 1.0  # seconds between two looks at how we are
Released = tuple[Assignment, int]
_P = TypeVar("_P")


class BrokerPoller:
    """
    Consumes *topics* as a member of *group*; all methods belong to one thread, the control thread.

    `open`, then `turn` again and again, then `close`; while a turn waits for a broker it asks
    *is_stopping* whether to go on. Records go to *work*. `completions` is a queue into which any thread
    puts lists of CompletionEvents and, for each release, an (assignment, number of records dropped)
    pair. `health`, `counts` and `standings` are brought up to date every second.
    """

    def __init__(
        self,
        topics: Sequence[str],
        group: str,
        kafka: KafkaConfig,
        execution: ExecutionConfig,
        work: Work,
        *,
        clock: Clock | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.completions: SimpleQueue[list[CompletionEvent] | Released] = SimpleQueue()
        self.counts = Counts()
        self.health = Health()
        self.standings: tuple[Standing, ...] = ()
        self.assigned = 0
        self._topics, self._group, self._kafka, self._execution = list(topics), group, kafka, execution
        self._work, self._clock, self._is_stopping = work, clock or SystemClock(), is_stopping
        self._stalls = Stalls(kafka.stall_policy, kafka.stall_after_ms / 1000, work.give_up)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._epochs = count(1)
        self._flow = Flow(kafka.queue_max_messages, kafka.message_cache_max_bytes)
        gated = kafka.dlq_enabled and not kafka.dlq_park_keys  # parked records follow a failure without a try
        self._gate = FloodGate(kafka.dlq_flood_limit if gated else 0)
        self._held: list[Record] = []  # failed in a flood; they run again
        self._probe_at = 0.0
        self._absent: set[str] = set()  # topics that we are to consume and that are not there
        self._buffered = 0  # records received and not done, as last counted
        self._looked = 0.0
        self._dead_letter_topics = DeadLetterTopics(kafka) if kafka.dlq_enabled else None
        self._transactions = self._make(Transactions) if kafka.exactly_once else None
        self._publisher = self._transactions or (self._make(DeadLetterPublisher) if kafka.dlq_enabled else None)
        self._parking = self._make_parking()
        self._bury_in = self._parking.bury if self._parking is not None else getattr(self._publisher, "publish", None)
        self._quarantine = self._make_quarantine()
        self._commits = self._transactions or Commits(kafka.commit_interval_ms / 1000)
        self._finish = self._transactions.succeeded if self._transactions is not None else _complete
        settings = consumer_settings(kafka, group, self._topics)
        self._is_cooperative, self._reset = is_cooperative(settings), str(settings["auto.offset.reset"])
        on_commit = {} if isinstance(self._commits, Transactions) else {"on_commit": self._commits.answered}
        self._outage = Outage(kafka, self._clock)
        self._consumer = Consumer({"error_cb": self._outage, **settings, **on_commit})

    # ------------------------------------------------------------------ life

    def open(self) -> None:
        """Join the group; raise SourceError if dead letters would have nowhere to go."""
        if self._dead_letter_topics is not None:
            self._dead_letter_topics.prepare(topic for topic in self._topics if not topic.startswith("^"))
        if self._transactions is not None:
            self._transactions.open(self._consumer, self._partitions.values)
        self._consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def turn(self) -> None:
        """Do one round; waits a moment if there is nothing to do."""
        self.hear()
        now, partitions = self._clock.monotonic(), self._partitions.values()
        self._buffered = sum([each.tracker.open for each in partitions])
        if self._held and (not self._gate.is_shut or now >= self._probe_at):
            self._try_held(now)
        if self._gate.is_shut and not self._buffered:  # what was held went with its partition: nothing is left to try
            self._gate.open_a_little()
        if self._quarantine is not None and (free := self._quarantine.step()):
            self._work.take(free)
        self._flow.step(self._consumer, partitions, now, shut=self._gate.is_shut)
        self._commits.step(self._consumer, partitions, now, idle=not self._buffered)
        if now - self._looked >= _GLANCE:
            if self._dead_letter_topics is not None:
                self._dead_letter_topics.prepare_in_time()
            self._outage.look(self._consumer)
            self._look(now)
            self._stalls.act(partitions, now)
        self._receive()

    def hear(self, wait: float = 0.0) -> None:
        """Take in completions, waiting up to *wait* seconds for the first; let dead letters go on."""
        try:
            news = self.completions.get(timeout=wait) if wait else self.completions.get_nowait()
            while True:
                self._take_in(news)
                news = self.completions.get_nowait()
        except Empty:
            pass
        if self._publisher is not None:
            self._publisher.poll()
        if self._parking is not None:
            self._parking.poll()

    def drain(self, partitions: list[Partition], seconds: float) -> None:
        """Start nothing more of *partitions*, wait for what runs, commit, and only then let go of them."""
        leaving = {partition.assignment for partition in partitions}
        self._drop_held(leaving)
        if self._quarantine is not None:
            self._quarantine.drop(leaving)
        for assignment in leaving:
            self._work.release(assignment)
        end = self._clock.monotonic() + seconds
        while any(each.unresolved > 0 for each in partitions) and self._clock.monotonic() < end:
            self.hear(wait=0.02)
            self._drop_held(leaving)  # what failed meanwhile is the next owner's, too
        self.hear()
        for partition in partitions:
            partition.dirty, partition.noted = partition.dirty or partition.noted, False  # a clean end leaves no note
        self._commits.now(self._consumer, partitions)
        for partition in partitions:
            self._let_go(partition)

    def close(self) -> None:
        """Drain everything, commit, leave the group."""
        try:
            self.drain(list(self._partitions.values()), self._execution.shutdown_drain_timeout_ms / 1000)
        finally:
            self._look(self._clock.monotonic())
            self._consumer.close()
            if self._publisher is not None:
                self._publisher.close()
            if self._parking is not None:
                self._parking.close()

    # ------------------------------------------------------------------ completions

    def _take_in(self, news: list[CompletionEvent] | Released) -> None:
        if isinstance(news, tuple):
            assignment, dropped = news
            assignment.state.dropped += dropped
            return
        gate, finish, processed = self._gate, self._finish, 0
        for event in news:
            record = event.record
            assignment = record.assignment
            if assignment.closed:
                self.counts.late += 1
            elif event.status is _SUCCESS:
                processed += 1
                if event.attempt > 1:
                    self.counts.again[event.attempt] += 1
                if gate.in_a_row:
                    gate.succeeded()
                finish(record)
            elif event.status is _FAILURE:
                self._bury(event)
            else:
                assignment.state.dropped += 1
        self.counts.processed += processed

    def _bury(self, event: CompletionEvent) -> None:
        if self._gate.holds(event.disposition):
            self._hold(event)
            return
        self.counts.failed += 1
        if event.attempt > 1:
            self.counts.again[event.attempt] += 1
        if self._bury_in is not None and self._kafka.dlq_enabled:
            self._bury_in(event)
        else:
            form = "%s is given up after attempt %d and, without a dead-letter topic, committed: %s"
            _log.error(form, repr(event.record), event.attempt, event.error)
            self._finish(event.record)

    # ------------------------------------------------------------------ floods

    def _hold(self, event: CompletionEvent) -> None:
        """Keep a record that fails as all others do; the dead-letter topic would only fill up."""
        if not self._held:
            self._probe_at = self._clock.monotonic() + self._kafka.dlq_flood_cooldown_ms / 1000
            _log.error("too many records fail in a row; consuming pauses until one succeeds: %s", event.error)
        self._held.append(event.record)

    def _drop_held(self, leaving: set[Assignment]) -> None:
        """Leave what is held of partitions that go to their next owner."""
        for record in self._held:
            record.assignment.state.dropped += record.assignment in leaving
        self._held = [record for record in self._held if record.assignment not in leaving]

    def _try_held(self, now: float) -> None:
        """Run one held record again to see whether the flood is over, or all of them once it is."""
        held = (record for record in self._held if not record.assignment.closed)
        self._held = sorted(held, key=lambda record: record.offset)  # one that was tried in vain is before its key's
        last = 1 if self._gate.is_shut else len(self._held)
        again, self._held = self._held[:last], self._held[last:]
        self._probe_at = now + self._kafka.dlq_flood_cooldown_ms / 1000
        for record in again:
            record.attempts, record.began, record.first_failed, record.ended = 0, 0.0, 0.0, False
        if again:
            self._work.take(again)

    # ------------------------------------------------------------------ records

    def _receive(self) -> None:
        if self._buffered >= self._kafka.queue_max_messages and self._flow.must_wait:
            if not rested(self._buffered):  # most likely there is room in a moment; pausing costs what was fetched
                self.hear(wait=_BUSY)
            return
        messages = self._consumer.consume(self._kafka.poll_batch_size, 0)
        if not messages:
            hurry = self._buffered or any(each.dirty for each in self._partitions.values())
            first = self._consumer.poll(_BUSY if hurry else _IDLE)
            if first is None:
                return
            messages = [first, *self._consumer.consume(self._kafka.poll_batch_size - 1, 0)]
        hit("kafka.after_poll")
        records = self._records(messages)
        self._stalls.admit(records)
        if self._quarantine is not None:
            records = self._quarantine.admit(records)
        if records:
            self._work.take(records)
            hit("kafka.after_dispatch")

    def _records(self, messages: list[Any]) -> list[Record]:
        """Note what was received; return what is to run."""
        records: list[Record] = []
        for run in runs(messages):
            first = run[0]
            partition = self._partitions.get((first.topic(), first.partition()))
            error = first.error()
            if error is not None or partition is None:
                self._odd(first, error, partition)
                continue
            if first.offset() < (partition.tracker.next_offset or 0):
                partition = self._rewound(partition)
            fresh = partition.receive(records_of(run, partition.assignment))
            self.counts.received += len(run)
            self.counts.skipped += len(run) - len(fresh)
            records += fresh
        self._buffered += len(records)
        return records

    def _odd(self, message: Message, error: KafkaError | None, partition: Partition | None) -> None:
        if error is None:
            return  # of a partition that was just taken away
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own name for it
            if partition is not None:
                partition.tracker.reached(message.offset() or 0)
                partition.dirty = True
        elif is_final(error):
            what = partition.name if partition is not None else repr(message.topic() or self._topics)
            raise SourceError(f"cannot consume {what}: {said(error, self._kafka)}")
        else:
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and message.topic():
                self._absent.add(message.topic() or "")
            _log.warning("the consumer says: %s", error.str())

    # ------------------------------------------------------------------ rebalances

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        refuse_loops(self._kafka, {place.topic for place in places} | {topic for topic, _ in self._partitions})
        found = committed(self._consumer, places, self._clock, self._is_stopping)
        now = self._clock.monotonic()
        self._absent -= {place.topic for place in places}
        for place in found:
            restored = done_beyond(self._consumer, place, self._clock, self._is_stopping)
            assignment = Assignment(place.topic, place.partition, next(self._epochs))
            partition = Partition(assignment, place.offset, restored, now)
            self._partitions[place.topic, place.partition] = partition
            if self._quarantine is not None:
                self._quarantine.assigned(partition, read_note(place.metadata)[0])
        self.assigned = len(self._partitions)
        if self._parking is not None:
            self._parking.assigned([each.assignment for each in self._ours(places)], self._is_stopping)
        begin(consumer, [start_of(place, self._reset) for place in found], cooperative=self._is_cooperative)
        if self._dead_letter_topics is not None:
            self._dead_letter_topics.prepare_in_time({place.topic for place in places})
        if places or not self._partitions:
            facts.tell_assigned(self._group, places, self.assigned)

    def _revoked(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        taken = self._ours(places)
        self.drain(taken, self._execution.max_revoke_grace_ms / 1000)
        facts.tell_revoked(self._group, [each.assignment for each in taken], self.assigned)

    def _lost(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        """Let go at once: somebody else may have them, and a commit could only do harm."""
        taken = self._ours(places)
        for partition in taken:
            self._let_go(partition)
            self._work.release(partition.assignment)
        facts.tell_revoked(self._group, [each.assignment for each in taken], self.assigned, lost=True)

    def _ours(self, places: list[TopicPartition]) -> list[Partition]:
        found = (self._partitions.get((place.topic, place.partition)) for place in places)
        return [partition for partition in found if partition is not None]

    def _let_go(self, partition: Partition) -> None:
        """Close the epoch: whatever its records come to from now on changes nothing."""
        owner = partition.assignment
        owner.closed = True
        if self._quarantine is not None:
            self._quarantine.drop({owner})
        if self._publisher is not None:
            self._publisher.forget(owner)
        if self._parking is not None:
            self._parking.forget(owner)
        if self._partitions.get((owner.topic, owner.partition)) is partition:
            del self._partitions[owner.topic, owner.partition]
        self.assigned = len(self._partitions)

    def _rewound(self, partition: Partition) -> Partition:
        """Start over: the log begins anew below what was received (it was deleted, or offsets were reset)."""
        _log.warning("%s starts again from an earlier offset", partition.name)
        old = partition.assignment
        self._let_go(partition)
        self._work.release(old)
        fresh = Partition(Assignment(old.topic, old.partition, next(self._epochs)), -1, [], self._clock.monotonic())
        self._partitions[old.topic, old.partition] = fresh
        if self._parking is not None:
            self._parking.assigned([fresh.assignment], self._is_stopping)
        return fresh

    # ------------------------------------------------------------------ how we are

    def _look(self, now: float) -> None:
        self._looked = now
        partitions = self._partitions.values()
        halted = [f"{each.name}: {each.halted}" for each in partitions if each.halted]
        if self._outage.reason:
            halted.append(self._outage.reason)
        if self._gate.is_shut:
            halted.append(f"too many records fail in a row; {len(self._held)} are held and will run again")
        stalled = self._stalls.told(partitions, now)
        if self._commits.last_error:
            stalled.append(f"the last commit failed: {self._commits.last_error}")
        if self._dead_letter_topics is not None:
            stalled += self._dead_letter_topics.told()
        if self._absent:
            stalled.append(f"no such topic to consume: {', '.join(sorted(self._absent))}; check its name, or create it")
        self.health = judge(halted, stalled)
        self.counts.retries = self._work.retries
        self.counts.in_flight = sum(each.tracker.open for each in partitions)
        self.counts.paused = sum(each.paused for each in partitions)
        self.counts.commit_failures = self._commits.failures
        if self._publisher is not None:
            self.counts.dlq_published = self._publisher.published
            self.counts.dlq_pending = self._publisher.pending
            self.counts.dlq_pending_age = self._publisher.age(now)
            self.counts.dlq_failures = self._publisher.failures
        self.standings = tuple(each.standing(now, self._end_of(each)) for each in partitions)

    def _end_of(self, partition: Partition) -> int:
        """Return where its log ends, as far as the client knows; negative if it does not."""
        place = TopicPartition(partition.assignment.topic, partition.assignment.partition)
        return int(self._consumer.get_watermark_offsets(place, cached=True)[1])

    def _halt(self, assignment: Assignment, why: str) -> None:
        partition: Partition = assignment.state
        if not assignment.closed and not partition.halted:
            partition.halted = why
            _log.error("%s is halted, nothing is committed past its dead letter: %s", partition.name, why)
            self._look(self._clock.monotonic())

    def _resume(self, assignment: Assignment) -> None:
        partition: Partition = assignment.state
        if partition.halted:
            partition.halted = ""
            _log.warning("%s goes on: its dead letters are taken again", partition.name)
            self._look(self._clock.monotonic())

    def _make_quarantine(self) -> Quarantine | None:
        limit = 0 if self._kafka.exactly_once else self._kafka.crash_loop_limit
        if not limit:
            return None
        commit = lambda partitions: self._commits.now(self._consumer, partitions)  # noqa: E731 - it is made later
        return Quarantine(limit, self._execution.max_in_flight, commit, self._bury, self._work.take_alone)

    def _make_parking(self) -> Parking | None:
        if not self._kafka.dlq_park_keys or self._publisher is None or self._dead_letter_topics is None:
            return None
        return Parking(self._kafka, self._dead_letter_topics, self._clock, self._publisher.publish, self._work.take)

    def _make(self, kind: Callable[..., _P]) -> _P:
        """Return what carries dead letters to the broker, connected with this poller."""
        return kind(
            self._kafka, self._group, self._execution.policy, self._dead_letter_topics, self._clock,
            delivered=_complete, halt=self._halt, resume=self._resume,
        )  # fmt: skip


def _complete(record: Record) -> None:
    """Note that *record* is handled or safely dead-lettered."""
    record.assignment.state.complete(record)
