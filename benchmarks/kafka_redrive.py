"""
redrive's Kafka consumer, as a user runs it.

Owns the cases that run in processes of their own: default settings unless the case says
otherwise, every id accounted for, dead letters read back from their topic.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

from benchmarks.fresh import ROOT, environment
from benchmarks.kafka_topics import Committed, begin_producing, create, ends, fails, ids_in
from benchmarks.kafka_work import LINES, Latency, Watch, check_noted, hash_a_lot, note_line, wait_for
from benchmarks.letters import resident
from redrive.sources.kafka import ExecutionConfig, KafkaConfig, ParallelConsumer
from redrive.sources.kafka.offsets.done_map import read_map
from redrive.sources.kafka.offsets.start_note import read_note

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka import TopicPartition

    from redrive.sources.kafka import Record

_QUICKLY: dict[str, Any] = {  # what the failure path is measured with
    "max_retries": 3, "retry_backoff_ms": 1, "exponential_backoff": False, "retry_jitter_ms": 0,
}  # fmt: skip
_SAMPLE = 0.25  # seconds
_SESSION = 3_000  # ms after which the broker gives up a member that was killed


def consume(
    _folder: Path,
    bootstrap: str,
    topic: str,
    n: int,
    *,
    ordering: str,
    sleep: float = 0.0,
    samples: bool = False,
) -> dict[str, Any]:
    """Handle the *n* records of *topic* with an async worker."""
    watch = Watch(n)

    async def work(record: Record) -> None:
        watch.note(record.value or b"")

    async def work_and_sleep(record: Record) -> None:
        watch.note(record.value or b"")
        await asyncio.sleep(sleep)

    consumer = _consumer(bootstrap, topic, work_and_sleep if sleep else work, ordering)
    committed, seconds, memory = asyncio.run(_consume(consumer, bootstrap, topic, watch, n, samples=samples))
    return {**watch.answer(committed, seconds), "memory": memory}


def consume_in_processes(folder: Path, bootstrap: str, topic: str, n: int, *, ordering: str) -> dict[str, Any]:
    """Do CPU work in as many processes as there are cores."""
    os.environ[LINES] = str(folder / "handled.txt")
    execution = ExecutionConfig(mode="process", process_count=os.cpu_count() or 2)
    consumer = _consumer(bootstrap, topic, work_hard, ordering, execution)
    committed, seconds, _ = asyncio.run(_consume(consumer, bootstrap, topic, Watch(n), n))
    check_noted(folder / "handled.txt", committed, n)
    return {"n": committed, "seconds": seconds}


def work_hard(record: Record) -> None:
    """Use the CPU, in another process."""
    note_line(record.value or b"")
    hash_a_lot(record.value or b"")


def with_failures(_folder: Path, bootstrap: str, topic: str, n: int, *, percent: int, ordering: str) -> dict[str, Any]:
    """Let *percent* of the records fail every try; each must be in the dead-letter topic, and only these."""
    logging.disable(logging.CRITICAL)
    watch = Watch(n)
    failing = bytes(fails(i, percent) for i in range(n))

    async def work(record: Record) -> None:
        i = json.loads(record.value or b"")["i"]
        if failing[i]:
            raise ValueError(f"order {i} never works")
        watch.marks.counts[i] += 1

    suffix = f".{uuid.uuid4().hex[:8]}.dlq"
    consumer = _consumer(
        bootstrap, topic, work, ordering, ExecutionConfig(**_QUICKLY), dlq_flood_limit=0, dlq_topic_suffix=suffix
    )
    committed, seconds, _ = asyncio.run(_consume(consumer, bootstrap, topic, watch, n))
    assert committed == n, f"{committed} of {n} committed"
    assert watch.marks.counts == bytes(1 - each for each in failing), "not every healthy record was handled once"
    letters = ids_in(bootstrap, topic + suffix)
    assert sorted(letters) == [i for i in range(n) if failing[i]], f"{len(letters)} dead letters"
    return {"n": n, "seconds": seconds, "dead": len(letters), "suffix": suffix}


def replay(_folder: Path, bootstrap: str, topic: str, n: int, *, suffix: str) -> dict[str, Any]:
    """Send *n* dead letters home, each confirmed, its place committed after it."""
    from redrive.sources.kafka.replay.filter import Filter  # noqa: PLC0415
    from redrive.sources.kafka.replay.replay import replay as send_home  # noqa: PLC0415

    before = sum(ends(bootstrap, topic).values())
    start = time.perf_counter()
    config = KafkaConfig(bootstrap_servers=bootstrap, dlq_topic_suffix=suffix)
    receipt = send_home(config, topic + suffix, Filter())
    seconds = time.perf_counter() - start
    assert receipt.replayed == n, receipt
    assert sum(ends(bootstrap, topic).values()) == before + n
    return {"n": n, "seconds": seconds}


# ---------------------------------------------------------------------- latency


def latency(_folder: Path, bootstrap: str, topic: str, n: int, *, rate: int, poison: bool) -> dict[str, Any]:
    """Return how long records of healthy keys take from being sent to being handled, beside a key that always fails."""
    logging.disable(logging.CRITICAL)
    create(bootstrap, topic)
    return asyncio.run(_latency(bootstrap, topic, n, rate, poison=poison))


async def _latency(bootstrap: str, topic: str, n: int, rate: int, *, poison: bool) -> dict[str, Any]:
    seen, others = Latency(), 0

    async def work(record: Record) -> None:
        nonlocal others
        if record.key == b"k0":
            others += record.attempt == 1
            if poison:
                raise ValueError("this key never works")
            return
        seen.note(json.loads(record.value or b""))

    consumer = _consumer(bootstrap, topic, work, "key_hash", ExecutionConfig(**_QUICKLY), dlq_flood_limit=0)
    running = asyncio.ensure_future(consumer.run())
    await wait_for(lambda: consumer.assigned > 0, 30, running)
    await asyncio.sleep(1)
    sending = begin_producing(bootstrap, topic, n, rate)
    try:
        await wait_for(lambda: len(seen.healthy) + others >= n, 60, running)
    finally:
        sending.wait()
    consumer.stop()
    await running
    return seen.answer()


# ---------------------------------------------------------------------- restart


def restart(_folder: Path, bootstrap: str, topic: str, n: int) -> dict[str, Any]:
    """Kill a consumer that has done all but the first record; return how many of the done its successor runs again."""
    group = uuid.uuid4().hex
    first = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.kafka_redrive", bootstrap, topic, group], cwd=ROOT, env=environment()
    )
    try:
        _until_all_but_one(bootstrap, topic, group, n)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    watch = Watch(n)

    async def work(record: Record) -> None:
        watch.note(record.value or b"")

    consumer = _consumer(bootstrap, topic, work, "unordered", group=group, session_timeout_ms=_SESSION)
    committed, seconds, _ = asyncio.run(_consume(consumer, bootstrap, topic, watch, n, partitions=1))
    assert committed == n
    assert watch.marks.counts[0] == 1, "the stuck record was not run again"
    return {"n": n, "seconds": seconds, "again": sum(watch.marks.counts) - 1}


def _until_all_but_one(bootstrap: str, topic: str, group: str, n: int) -> None:
    look, end = Committed(bootstrap, group, topic, 1), time.monotonic() + 60
    while time.monotonic() < end:
        place: TopicPartition = look.places()[0]
        if place.offset == 0 and place.metadata:
            done = read_map(0, read_note(place.metadata)[1], end=n)
            if sum(high - low for low, high in done) == n - 1:
                return
        time.sleep(0.05)
    raise AssertionError("the map of what is done was not committed")


def _stuck(bootstrap: str, topic: str, group: str) -> None:
    """Consume, and never end with the first record; somebody kills us."""

    async def work(record: Record) -> None:
        if record.offset == 0:
            await asyncio.Event().wait()

    execution = ExecutionConfig(task_timeout_ms=None)
    asyncio.run(
        _consumer(bootstrap, topic, work, "unordered", execution, group=group, session_timeout_ms=_SESSION).run()
    )


# ---------------------------------------------------------------------- one run


def _consumer(
    bootstrap: str,
    topic: str,
    worker: Callable[[Record], Any],
    ordering: Any,
    execution: ExecutionConfig | None = None,
    *,
    group: str = "",
    **kafka: Any,
) -> ParallelConsumer:
    config = KafkaConfig(bootstrap_servers=bootstrap, **kafka)
    return ParallelConsumer(
        [topic], worker, group=group or uuid.uuid4().hex, ordering=ordering, execution=execution, kafka=config
    )


async def _consume(
    consumer: ParallelConsumer, bootstrap: str, topic: str, watch: Watch, n: int,
    *, partitions: int = 8, samples: bool = False,
) -> tuple[int, float, list[tuple[int, float]]]:  # fmt: skip
    look = Committed(bootstrap, consumer.group, topic, partitions)
    running = asyncio.ensure_future(consumer.run())
    await wait_for(lambda: consumer.assigned > 0, 30, running)
    watch.begin()
    memory: list[tuple[int, float]] = []
    sampling = asyncio.ensure_future(_sample(watch, memory)) if samples else None
    committed, seconds = await watch.until_committed(look, n, None if samples else 120)
    if sampling is not None:
        sampling.cancel()
    consumer.stop()
    await running
    return committed, seconds, memory


async def _sample(watch: Watch, memory: list[tuple[int, float]]) -> None:
    while True:
        memory.append((len(watch.marks.counts) - watch.marks.counts.count(0), resident()))
        await asyncio.sleep(_SAMPLE)


if __name__ == "__main__":
    _stuck(*sys.argv[1:])
