"""
The parallel consumer, the class that users hold.

Owns the two threads and their wiring: the event loop, where the worker runs, and the control thread, where the
poller runs. Knows neither offsets nor retries.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from queue import Queue
from typing import TYPE_CHECKING, get_args

from confluent_kafka import KafkaException

from redrive.engine.clock import SystemClock
from redrive.engine.import_names import SCRIPT
from redrive.engine.switch_interval import quick_switching
from redrive.errors import RedriveError, SettingsError, SourceError
from redrive.signals.tracing import open_tracing
from redrive.sources.kafka.bridge import LoopBridge
from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig
from redrive.sources.kafka.config_checks import Ordering, topic_problem
from redrive.sources.kafka.control.poller import BrokerPoller
from redrive.sources.kafka.dead_letters.parked_keys import ParkedKeys
from redrive.sources.kafka.execution.engine import EXHAUSTED
from redrive.sources.kafka.execution.factory import engine_for, suspects_engine_for
from redrive.sources.kafka.execution.parking import ParkingWorkManager
from redrive.sources.kafka.execution.work_manager import WorkManager
from redrive.sources.kafka.facts import ConsumerStarted, ConsumerStopped, tell
from redrive.sources.kafka.health import Counts, Health, PartitionStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redrive.engine.clock import Clock
    from redrive.signals.otel import OpenTelemetry
    from redrive.signals.tracing import Tracing
    from redrive.sources.kafka.control.poller import Completions
    from redrive.sources.kafka.execution.engine import ExecutionEngine
    from redrive.sources.kafka.execution.handlers import Worker

_log = logging.getLogger("redrive.kafka")


class ParallelConsumer:
    """
    Consumes *topics* and runs *worker* on every record, many at once, in the order asked for.

    The worker takes one `Record`; async workers run on the event loop, others in threads, and with
    `ExecutionConfig(mode="process")` in processes. A `WorkerFactory` makes the worker where it runs; a handler made by
    `record_handler` brings its own policy, rules and timeout. Records whose worker raises are retried, then published
    to the dead-letter topic. Offsets are committed only past records that are handled or confirmed there. A topic
    that begins with `^` is a pattern. *tracing* is the setting of that name. Raises SettingsError with every problem.
    """

    def __init__(
        self,
        topics: Sequence[str],
        worker: Worker,
        *,
        group: str = "",
        ordering: Ordering = "key_hash",
        execution: ExecutionConfig | None = None,
        kafka: KafkaConfig | None = None,
        tracing: Tracing = None,
    ) -> None:
        self.topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self.worker, self.ordering, self._wants_tracing = worker, ordering, tracing
        self.execution, self.kafka = execution or ExecutionConfig(), kafka or KafkaConfig()
        self.group = group or self.kafka.consumer_group
        problems = self._problems()
        if problems:
            raise SettingsError(problems)
        self._poller: BrokerPoller | None = None
        self._engine: ExecutionEngine | None = None
        self._stopping = threading.Event()
        self._trouble: BaseException | None = None  # what ended it

    @property
    def health(self) -> Health:
        """Green, degraded or red, and the reasons."""
        if self._trouble is not None:
            return Health("red", (f"the consumer has stopped: {_said(self._trouble)}",))
        known = self._poller.health if self._poller is not None else Health()
        if self._engine is not None and self._engine.exhausted:
            return Health("red", (EXHAUSTED, *known.reasons))
        return known

    @property
    def counts(self) -> Counts:
        """What it has done so far; updated every second."""
        return self._poller.counts if self._poller is not None else Counts()

    @property
    def partitions(self) -> tuple[PartitionStatus, ...]:
        """The status of each assigned partition; updated every second."""
        return self._poller.partitions if self._poller is not None else ()

    @property
    def standings(self) -> tuple[PartitionStatus, ...]:
        """The name of `partitions` until 0.1."""
        return self.partitions

    @property
    def assigned(self) -> int:
        """How many partitions are assigned now."""
        return self._poller.assigned if self._poller is not None else 0

    @property
    def concurrency(self) -> int:
        """How many records may run at once now; 0 before it runs."""
        return self._engine.slots if self._engine is not None else 0

    def stop(self) -> None:
        """Let `run` drain, commit and end; may be called from any thread and from a signal handler."""
        self._stopping.set()

    async def run(self) -> None:
        """Consume until stopped or cancelled; raise SourceError if that is impossible."""
        if SCRIPT in sys.modules:  # a child process imports the parent's script to find the worker
            raise SourceError(
                "cannot consume inside a worker process, which imports the script to find its worker; "
                "start the consumer under `if __name__ == '__main__':`"
            )
        loop, clock, tracing = asyncio.get_running_loop(), SystemClock(), open_tracing(self._wants_tracing)
        completions: Completions = Queue()
        parked = ParkedKeys()
        work = self._work_manager(completions, parked, clock)
        if tracing is not None:
            work.trace(tracing, self.group)
        bridge = LoopBridge(loop, work, completions, self._break)
        poller = self._connect(bridge, completions, parked, clock, tracing)
        self._engine, self._poller = work.engine, poller
        ended = loop.create_future()
        control = threading.Thread(target=self._control, args=(poller, loop, ended), name="redrive-kafka", daemon=True)
        tell(ConsumerStarted(group=self.group, topics=self.topics))
        control.start()
        try:
            work.engine.prepare()  # while the control thread joins the group
            with quick_switching():
                await asyncio.wait([ended])
        finally:
            self.stop()
            await _settled(ended)
            await work.close(0)
            self._tell_stopped(poller.counts)
        if self._trouble is not None:
            raise self._trouble

    def _work_manager(self, completions: Completions, parked: ParkedKeys, clock: Clock) -> WorkManager:
        engine = engine_for(self.worker, self.execution, clock=clock, exactly_once=self.kafka.exactly_once)
        is_guarded = self.kafka.crash_loop_limit and not self.kafka.exactly_once
        suspects = suspects_engine_for(self.worker, self.execution, engine, clock=clock) if is_guarded else engine
        room, deliver = self.kafka.queue_max_messages, completions.put
        if not self.kafka.dlq_park_keys:
            return WorkManager(engine, self.ordering, deliver, suspects=suspects, room=room, broke=self._break)
        return ParkingWorkManager(
            engine, self.ordering, deliver, keys=parked, suspects=suspects, room=room, broke=self._break
        )

    def _tell_stopped(self, counts: Counts) -> None:
        why = "stopped" if self._trouble is None else _said(self._trouble)
        tell(ConsumerStopped(group=self.group, why=why, processed=counts.processed, failed=counts.failed))

    def _break(self, error: BaseException) -> None:
        """Stop because of *error*, which `run` then raises: some records may never complete after it."""
        if self._trouble is None:
            self._trouble = error
            _log.error("the consumer of group %r stops: %s", self.group, _said(error))
        self.stop()

    def _connect(
        self,
        bridge: LoopBridge,
        completions: Completions,
        parked: ParkedKeys,
        clock: Clock,
        tracing: OpenTelemetry | None,
    ) -> BrokerPoller:
        try:
            return BrokerPoller(
                self.topics, self.group, self.kafka, self.execution, bridge,
                completions=completions, parked=parked, clock=clock, is_stopping=self._stopping.is_set,
                tracing=tracing,
            )  # fmt: skip
        except KafkaException as error:
            way = "check settings, consumer_settings and producer_settings, which are passed through"
            raise SettingsError([f"the Kafka client refuses its settings: {error.args[0].str()}; {way}"]) from None

    # ------------------------------------------------------------------ the control thread

    def _control(self, poller: BrokerPoller, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        try:
            poller.open()
            while not self._stopping.is_set():
                poller.round()
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self._break(error)
        try:
            poller.close()
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self._break(error)
        loop.call_soon_threadsafe(ended.set_result, None)

    # ------------------------------------------------------------------ what makes sense

    def _problems(self) -> list[str]:
        problems = [] if self.topics else ["topics is empty; name at least one"]
        problems += [why for topic in self.topics if not topic.startswith("^") and (why := topic_problem(topic))]
        if not self.group:
            problems.append("group is empty; name the consumer group, such as group='shipping'")
        if self.ordering not in get_args(Ordering):
            problems.append(f"ordering is {self.ordering!r} and must be key_hash, partition or unordered")
        if self.kafka.dlq_park_keys and (self.ordering != "key_hash" or not self.kafka.dlq_enabled):
            problems.append("kafka.dlq_park_keys needs ordering key_hash and kafka.dlq_enabled")
        if self.kafka.dlq_park_keys and self.kafka.exactly_once:
            problems.append("kafka.dlq_park_keys and kafka.exactly_once do not go together; choose one")
        if self.kafka.exactly_once and (self.execution.mode == "process" or self.execution.batch_size is not None):
            problems.append("kafka.exactly_once needs a worker that takes one record, in execution.mode async")
        loops = [topic for topic in self.topics if self.kafka.dlq_topic(topic) in self.topics]
        if self.kafka.dlq_enabled and loops:
            problems.append(f"topics has both {loops[0]!r} and its dead-letter topic; remove the latter")
        return problems


def _said(error: BaseException) -> str:
    """Return *error* as text; for one that is not ours only its type, because its text may quote a record."""
    return str(error) if isinstance(error, RedriveError) else type(error).__name__


async def _settled(ended: asyncio.Future[None]) -> None:
    """Wait until the control thread has ended, even if this is cancelled again."""
    while not ended.done():
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError:  # it needs its drain time to commit and to leave the group
            continue
