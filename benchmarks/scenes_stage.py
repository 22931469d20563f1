"""
The stage on which pyrallel-consumer and redrive play the same scenes.

Owns how each is started and told the same, and the evidence, which neither of them gives: ids
that handlers noted in a file, committed offsets and dead letters as the broker has them.
Knows no scene.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import multiprocessing
import os
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from benchmarks.kafka_peers import configured
from benchmarks.kafka_topics import Committed, body, create, key, values_in
from benchmarks.kafka_work import LINES
from redrive.sources.kafka import ExecutionConfig, KafkaConfig, ParallelConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
    from pathlib import Path

PYRALLEL = "pyrallel-consumer"
_STOP = 20.0  # seconds that a consumer may take to end
_LOOK = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What both consumers are told; all else is as they ship, pyrallel-consumer's batches of 64 included."""

    engine: Any = "async"
    tries: int = 3
    backoff_ms: int = 10
    timeout_ms: int = 30_000  # a try
    at_once: int = 1_000
    processes: int = 2
    cache_bytes: int = 64 * 2**20
    keeps_map: bool = False  # what is done beyond the committed offset; redrive always does
    hopeless: tuple[type[Exception], ...] = ()  # errors that no other try heals; only redrive can be told


@dataclass(slots=True)
class Stage:
    """A topic of one partition or more, its dead-letter topic, a group, and the outside view of them."""

    folder: Path
    bootstrap: str
    who: str
    topic: str = field(default_factory=lambda: f"scene-{uuid.uuid4().hex[:8]}")
    _look: Committed | None = None

    def create(self, partitions: int = 1, *, dead_letters: bool = True) -> None:
        """Make the topic, and that of its dead letters."""
        create(self.bootstrap, self.topic, partitions)
        self._look = Committed(self.bootstrap, self.topic, self.topic, partitions)
        if dead_letters:
            create(self.bootstrap, f"{self.topic}.dlq", partitions)

    def produce(self, ids: Iterable[int], *, size: int = 0, partition: int = 0) -> None:
        """Send records, each confirmed; those of partition 0 have their ids as offsets if nothing else is sent."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "acks": "all"})
        for i in ids:
            producer.produce(self.topic, key=key(i), value=body(i, more="x" * size), partition=partition)
            producer.poll(0)
        assert producer.flush(30) == 0

    @contextlib.asynccontextmanager
    async def consuming(self, worker: Callable[[Any], Any], **told: Any) -> AsyncIterator[None]:
        """Run a member of the group."""
        begin = _pyrallel if self.who == PYRALLEL else _redrive
        stop = await begin(self, worker, Told(**told))
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # what it has done by then is what counts
                await asyncio.wait_for(stop(), _STOP)

    async def until(self, condition: Callable[[], bool], limit: float) -> bool:
        """Wait for *condition*; return whether it came true within *limit* seconds."""
        end = time.monotonic() + limit
        while not await asyncio.to_thread(condition):
            if time.monotonic() > end:
                return False
            await asyncio.sleep(_LOOK)
        return True

    # ------------------------------------------------------------------ evidence

    def noted(self) -> list[int]:
        """Return the ids that handlers noted, as often as they did."""
        path = self.folder / "handled.txt"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def committed(self) -> int:
        """Return how far all partitions are committed, together."""
        assert self._look is not None
        return self._look.total()

    def committed_in(self, partition: int) -> int:
        """Return how far one partition is committed."""
        assert self._look is not None
        return max(self._look.places()[partition].offset, 0)

    def dead(self) -> list[bytes | None]:
        """Return the values in the dead-letter topic."""
        return values_in(self.bootstrap, f"{self.topic}.dlq")

    def accounted(self) -> set[int]:
        """Return the ids that were handled or dead-lettered."""
        return {*self.noted(), *(json.loads(value)["i"] for value in self.dead() if value)}


def scene(play: Callable[[Stage], Coroutine[Any, Any, dict[str, int]]]) -> Callable[..., dict[str, int]]:
    """Make a case of *play*: its answer says how many records there were, and with how many it went wrong."""

    @functools.wraps(play)
    def case(folder: Path, bootstrap: str, *, who: str) -> dict[str, int]:
        os.environ[LINES] = str(folder / "handled.txt")
        try:
            found = asyncio.run(play(Stage(folder, bootstrap, who)))
        finally:
            _kill_children()
        atexit.register(os._exit, 0)  # what was left behind must not be waited for
        return found

    return case


# ---------------------------------------------------------------------- the two of them


async def _pyrallel(stage: Stage, worker: Any, told: Told) -> Callable[[], Any]:
    from pyrallel_consumer import PyrallelConsumer  # noqa: PLC0415

    config = configured(stage.bootstrap, stage.topic, told.engine, "key_hash", best=False)
    parallel, execution = config.parallel_consumer, config.parallel_consumer.execution
    execution.max_retries, execution.retry_backoff_ms, execution.retry_jitter_ms = told.tries, told.backoff_ms, 0
    execution.max_in_flight, execution.process_config.process_count = told.at_once, told.processes
    execution.async_config.task_timeout_ms = execution.process_config.task_timeout_ms = told.timeout_ms
    parallel.message_cache_max_bytes = told.cache_bytes
    parallel.rebalance_state_strategy = "metadata_snapshot" if told.keeps_map else "contiguous_only"
    consumer = PyrallelConsumer(config=config, worker=worker, topic=stage.topic)
    await consumer.start()
    return consumer.stop if told.engine == "async" else _abandon


async def _abandon() -> None:
    """End pyrallel-consumer's workers without its `stop`, which may wait for ever for the rest of a dead one's log."""
    _kill_children()


def _kill_children() -> None:
    for child in multiprocessing.active_children():
        child.kill()


async def _redrive(stage: Stage, worker: Any, told: Told) -> Callable[[], Any]:
    execution = ExecutionConfig(
        mode=told.engine, max_retries=told.tries, retry_backoff_ms=told.backoff_ms, retry_jitter_ms=0,
        max_in_flight=told.at_once, process_count=told.processes, task_timeout_ms=told.timeout_ms,
        terminal_errors=told.hopeless,
    )  # fmt: skip
    kafka = KafkaConfig(
        bootstrap_servers=stage.bootstrap, dlq_create_topics=False, message_cache_max_bytes=told.cache_bytes
    )
    consumer = ParallelConsumer([stage.topic], worker, group=stage.topic, execution=execution, kafka=kafka)
    running = asyncio.ensure_future(consumer.run())

    async def stop() -> None:
        consumer.stop()
        await running

    return stop


# ---------------------------------------------------------------------- what handlers get


def value_of(given: Any) -> bytes:
    """Return the value of what either of them gives to a handler."""
    return bytes(given.payload if hasattr(given, "payload") else given.value)


def id_of(given: Any) -> int:
    """Return the id of it."""
    return int(json.loads(value_of(given))["i"])
