"""
The parallel consumer: the face that users hold.

Owns the two threads and the bridge between them: the event loop, where the worker runs, and
the control thread, where the poller lives. Knows neither offsets nor retries.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any, get_args

from confluent_kafka import KafkaException

from redrive.engine.clock import SystemClock
from redrive.engine.import_names import SCRIPT
from redrive.engine.switch_interval import quick_switching
from redrive.errors import RedriveError, SettingsError, SourceError
from redrive.sources.kafka.config import ExecutionConfig, KafkaConfig, Ordering, topic_problem
from redrive.sources.kafka.control.poller import BrokerPoller
from redrive.sources.kafka.execution.adaptive import adapt
from redrive.sources.kafka.execution.engine import EXHAUSTED, engine_for
from redrive.sources.kafka.execution.parking import ParkingWorkManager
from redrive.sources.kafka.execution.producing import ProducingEngine
from redrive.sources.kafka.execution.suspects import SuspectEngine
from redrive.sources.kafka.execution.work_manager import WorkManager
from redrive.sources.kafka.facts import ConsumerStarted, ConsumerStopped, tell
from redrive.sources.kafka.health import Counts, Health, Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redrive.engine.clock import Clock
    from redrive.sources.kafka.execution.engine import ExecutionEngine
    from redrive.sources.kafka.execution.worker_factory import WorkerFactory
    from redrive.sources.kafka.records.completion import CompletionEvent
    from redrive.sources.kafka.records.record import Assignment, Record


_log = logging.getLogger("redrive.kafka")


class ParallelConsumer:
    """
    Consumes *topics* and runs *worker* on every record, many at once, in the order asked for.

    The worker takes one `Record`; async workers run on the event loop, others in threads, and
    with `ExecutionConfig(mode="process")` in processes; a `WorkerFactory` makes it where it runs.
    What it raises is retried, then published to the dead-letter topic; offsets are committed only
    past records that are handled or safely there. A topic that begins with `^` is a pattern. Raises
    SettingsError with every problem.
    """

    def __init__(
        self,
        topics: Sequence[str],
        worker: Callable[[Record], Any] | WorkerFactory,
        *,
        group: str = "",
        ordering: Ordering = "key_hash",
        execution: ExecutionConfig | None = None,
        kafka: KafkaConfig | None = None,
    ) -> None:
        self.topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self.worker, self.ordering = worker, ordering
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
        """How it is: green, degraded or red, and why."""
        if self._trouble is not None:
            return Health("red", (f"it has stopped: {_said(self._trouble)}",))
        known = self._poller.health if self._poller is not None else Health()
        if self._engine is not None and self._engine.exhausted:
            return Health("red", (EXHAUSTED, *known.reasons))
        return known

    @property
    def counts(self) -> Counts:
        """What it has done so far; brought up to date every second."""
        return self._poller.counts if self._poller is not None else Counts()

    @property
    def standings(self) -> tuple[Standing, ...]:
        """Where each of its partitions stands; brought up to date every second."""
        return self._poller.standings if self._poller is not None else ()

    @property
    def assigned(self) -> int:
        """How many partitions are assigned to it now."""
        return self._poller.assigned if self._poller is not None else 0

    @property
    def concurrency(self) -> int:
        """How many records may run at once now; 0 before it runs."""
        return self._engine.slots if self._engine is not None else 0

    def stop(self) -> None:
        """Let `run` drain, commit and end; may be called from any thread, a signal handler too."""
        self._stopping.set()

    async def run(self) -> None:
        """Consume until stopped or cancelled; raise SourceError if that cannot be done."""
        if SCRIPT in sys.modules:  # a child process imports the script that started us, to find its worker
            raise SourceError(
                "a script that is imported by a worker process consumes nothing; start it under "
                "`if __name__ == '__main__':`"
            )
        loop = asyncio.get_running_loop()
        clock = SystemClock()
        made = ProducingEngine if self.kafka.exactly_once else engine_for
        self._engine = engine = adapt(made(self.worker, self.execution, clock=clock), self.execution, clock)
        bridge = _Bridge(loop, self._break)
        poller = self._connect(bridge, clock)
        schedules = ParkingWorkManager if self.kafka.dlq_park_keys else WorkManager
        suspects = self._suspects(engine, clock)
        engine.broke = suspects.broke = self._break
        room = self.kafka.queue_max_messages
        bridge.work = schedules(engine, self.ordering, poller.completions.put, suspects=suspects, room=room)
        bridge.poller = self._poller = poller
        ended = loop.create_future()
        control = threading.Thread(target=self._control, args=(poller, loop, ended), name="redrive-kafka", daemon=True)
        tell(ConsumerStarted(group=self.group, topics=self.topics))
        control.start()
        try:
            engine.prepare()  # while the control thread joins the group
            with quick_switching():
                await asyncio.wait([ended])
        finally:
            self.stop()
            await _settled(ended)
            await bridge.work.close(0)
            self._tell_stopped(poller.counts)
        if self._trouble is not None:
            raise self._trouble

    def _tell_stopped(self, counts: Counts) -> None:
        why = "stopped" if self._trouble is None else _said(self._trouble)
        tell(ConsumerStopped(group=self.group, why=why, processed=counts.processed, failed=counts.failed))

    def _break(self, error: BaseException) -> None:
        """Stop because of *error*, which `run` then raises: records may wait for ever for what it has left undone."""
        if self._trouble is None:
            self._trouble = error
            _log.error("the consumer of group %r stops: %s", self.group, _said(error))
        self.stop()

    def _suspects(self, engine: ExecutionEngine, clock: Clock) -> ExecutionEngine:
        """Return what runs records that may kill the consumer: its own engine, if that is safe from them."""
        if self.execution.mode == "process" or self.kafka.exactly_once or not self.kafka.crash_loop_limit:
            return engine
        return SuspectEngine(self.worker, self.execution, engine, clock=clock)

    def _connect(self, bridge: _Bridge, clock: Clock) -> BrokerPoller:
        try:
            return BrokerPoller(
                self.topics, self.group, self.kafka, self.execution, bridge,
                clock=clock, is_stopping=self._stopping.is_set,
            )  # fmt: skip
        except KafkaException as error:
            way = "see the settings, consumer_settings and producer_settings that are passed through"
            raise SettingsError([f"the Kafka client refuses: {error.args[0].str()}; {way}"]) from None

    # ------------------------------------------------------------------ the control thread

    def _control(self, poller: BrokerPoller, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        try:
            poller.open()
            while not self._stopping.is_set():
                poller.turn()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised by `run`
            self._break(error)
        try:
            poller.close()
        except BaseException as error:  # noqa: BLE001
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
            problems.append(f"topics holds {loops[0]!r} and its own dead-letter topic; leave the latter out")
        return problems


class _Bridge:
    """Carries what the poller asks for to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broke: Callable[[BaseException], None]) -> None:
        self._post, self._broke = loop.call_soon_threadsafe, broke
        self.work: WorkManager
        self.poller: BrokerPoller

    @property
    def retries(self) -> int:
        return self.work.engine.retries

    def take(self, records: list[Record]) -> None:
        self._call(self.work.take, records)

    def take_alone(self, records: list[Record]) -> None:
        self._call(self.work.take_alone, records)

    def release(self, assignment: Assignment) -> None:
        self._call(self._release, assignment)

    def give_up(self, event: CompletionEvent) -> None:
        self._call(self.work.give_up, event)

    def _call(self, act: Callable[[Any], None], what: object) -> None:
        self._post(self._do, act, what)

    def _do(self, act: Callable[[Any], None], what: object) -> None:
        try:
            act(what)
        except Exception as error:  # noqa: BLE001 - nobody above would say it: the event loop called this
            self._broke(error)

    def _release(self, assignment: Assignment) -> None:
        self.poller.completions.put((assignment, self.work.release(assignment)))


def _said(error: BaseException) -> str:
    """Return *error* in words; of one that is not ours its kind alone, because its text may quote a record."""
    return str(error) if isinstance(error, RedriveError) else type(error).__name__


async def _settled(ended: asyncio.Future[None]) -> None:
    """Wait until the control thread has ended, also when we are cancelled again meanwhile."""
    while not ended.done():
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError:  # it commits and leaves within its drain time; going first would lose that
            continue
