"""
Other ways to consume: a plain loop, pyrallel-consumer, FastStream.

Owns each peer's case, through its public interface, with the settings that its own documents
call best. Each is imported only in the process that measures it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import multiprocessing
import os
import time
import uuid
from typing import TYPE_CHECKING, Any

from benchmarks.kafka_topics import Committed, begin_producing, create, fails, ids_in
from benchmarks.kafka_work import LINES, Latency, Watch, check_noted, hash_a_lot, note_line, wait_for

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

_COMMIT_EVERY = 5_000


def plain_loop(_folder: Path, bootstrap: str, topic: str, n: int, *, cpu: bool = False) -> dict[str, Any]:
    """`consume(500)`, handle each, commit every 5,000 without waiting, and once more at the end, waiting."""
    from confluent_kafka import Consumer  # noqa: PLC0415

    watch, done, since = Watch(n), 0, 0
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([topic], on_assign=lambda *_: watch.begin())
    while done < n:
        messages: list[Any] = consumer.consume(500, 1.0)
        for message in messages:
            if message.error() is None:
                watch.note(message.value())
                if cpu:
                    hash_a_lot(message.value())
                done, since = done + 1, since + 1
        if since >= _COMMIT_EVERY:
            consumer.commit(asynchronous=True)
            since = 0
    consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
    seconds = time.perf_counter() - watch.began
    consumer.close()
    return watch.answer(done, seconds)


# ---------------------------------------------------------------------- FastStream


def faststream(_folder: Path, bootstrap: str, topic: str, n: int, *, batch: bool, cut: float | None = None) -> Any:
    """Its default (acknowledge first, commit on a timer), or batches of 500 that are committed when handled."""
    return asyncio.run(_faststream(bootstrap, topic, n, batch=batch, cut=cut))


async def _faststream(bootstrap: str, topic: str, n: int, *, batch: bool, cut: float | None) -> dict[str, Any]:
    from faststream import AckPolicy  # noqa: PLC0415
    from faststream.confluent import KafkaBroker  # noqa: PLC0415

    broker, watch, group = KafkaBroker(bootstrap, logger=None), Watch(n), uuid.uuid4().hex
    options: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest"}
    if batch:
        options |= {"batch": True, "max_records": 500, "ack_policy": AckPolicy.ACK}

    def note(content: dict[str, Any]) -> None:
        watch.begin()
        watch.marks.counts[content["i"]] += 1

    async def handle(content: dict) -> None:  # type: ignore[type-arg]
        note(content)

    async def handle_batch(contents: list[dict]) -> None:  # type: ignore[type-arg]
        for content in contents:
            note(content)

    broker.subscriber(topic, **options)(handle_batch if batch else handle)
    await broker.start()
    found = await watch.until_committed(Committed(bootstrap, group, topic), n, cut)
    await broker.stop()
    return watch.answer(*found)


# ---------------------------------------------------------------------- pyrallel-consumer


def pyrallel(
    folder: Path,
    bootstrap: str,
    topic: str,
    n: int,
    *,
    engine: str,
    ordering: str,
    sleep: float = 0.0,
    cpu: bool = False,
    percent: int = 0,
    cut: float | None = None,
) -> dict[str, Any]:
    """Its two engines with the settings that its playbook calls best for throughput."""
    os.environ[LINES] = str(folder / "handled.txt")
    logging.disable(logging.CRITICAL)
    watch = Watch(n)
    worker = _process_worker(sleep, cpu=cpu) if engine == "process" else _async_worker(watch, sleep, percent, cpu=cpu)
    found = asyncio.run(_pyrallel(bootstrap, topic, n, engine, ordering, worker, watch, sleep=sleep, cut=cut))
    for child in multiprocessing.active_children():  # it may leave some behind, and the interpreter would wait for them
        child.kill()
    committed, seconds = found
    if percent:
        return _failing(watch, bootstrap, topic, percent, committed, seconds)
    if engine == "process":
        check_noted(folder / "handled.txt", committed, n)
        return {"n": committed, "seconds": seconds}
    return watch.answer(committed, seconds)


async def _pyrallel(  # noqa: PLR0917
    bootstrap: str, topic: str, n: int, engine: str, ordering: str, worker: Any, watch: Watch,
    *, sleep: float, cut: float | None,
) -> tuple[int, float]:  # fmt: skip
    from pyrallel_consumer import PyrallelConsumer  # noqa: PLC0415

    group = uuid.uuid4().hex
    consumer = PyrallelConsumer(
        config=configured(bootstrap, group, engine, ordering, sleeping=bool(sleep)), worker=worker, topic=topic
    )
    look = Committed(bootstrap, group, topic)
    await consumer.start()
    committed, seconds = await watch.until_committed(look, n, cut)
    if _first.value:  # in a child process: the first handler's call
        seconds = time.time() - _first.value
    with contextlib.suppress(Exception):  # a slow stop must not spoil the figure
        await asyncio.wait_for(consumer.stop(), 10)
    return committed, seconds


def configured(
    bootstrap: str, group: str, engine: str, ordering: str, *, sleeping: bool = False, best: bool = True
) -> Any:
    """Return its configuration for throughput, scaled to this machine; if not *best*, as it is shipped."""
    from pyrallel_consumer import ExecutionMode, KafkaConfig, OrderingMode  # noqa: PLC0415

    config = KafkaConfig(BOOTSTRAP_SERVERS=[bootstrap], CONSUMER_GROUP=group)
    parallel = config.parallel_consumer
    parallel.ordering_mode = OrderingMode(ordering)
    parallel.execution.mode = ExecutionMode(engine)
    if not best:
        return config
    parallel.execution.max_in_flight = 5000
    parallel.execution.max_retries = 3
    parallel.execution.retry_backoff_ms, parallel.execution.retry_jitter_ms = 1, 0
    parallel.execution.exponential_backoff = False
    parallel.poll_batch_size = 2000 if engine == "process" else 1000
    if engine == "process":
        process = parallel.execution.process_config
        process.process_count = 16 if sleeping else os.cpu_count() or 2
        process.batch_size, process.queue_size = 256, 4096
    return config


def _async_worker(watch: Watch, sleep: float, percent: int, *, cpu: bool) -> Callable[[Any], Any]:
    async def work(item: Any) -> None:
        if percent:
            watch.begin()
            i = json.loads(item.payload)["i"]
            if fails(i, percent):
                raise ValueError(f"order {i} never works")
            watch.marks.counts[i] += 1
            return
        watch.note(item.payload)
        if cpu:
            hash_a_lot(item.payload)
        if sleep:
            await asyncio.sleep(sleep)

    return work


_first = multiprocessing.RawValue("d", 0.0)  # shared with forked workers: when the first handler began
_process_sleep = [0.0]
_process_cpu = [False]


def _process_worker(sleep: float, *, cpu: bool) -> Callable[[Any], None]:
    _process_sleep[0], _process_cpu[0] = sleep, cpu
    return _work_in_process


def _work_in_process(item: Any) -> None:
    if not _first.value:
        _first.value = time.time()
    note_line(item.payload)
    if _process_cpu[0]:
        hash_a_lot(item.payload)
    if _process_sleep[0]:
        time.sleep(_process_sleep[0])


def _failing(watch: Watch, bootstrap: str, topic: str, percent: int, committed: int, seconds: float) -> dict[str, Any]:
    n = len(watch.marks.counts)
    letters = ids_in(bootstrap, f"{topic}.dlq")
    expected = [i for i in range(n) if fails(i, percent)]
    if committed == n:
        assert sorted(set(letters)) == expected, f"{len(set(letters))} of {len(expected)} dead letters"
    return {"n": committed, "seconds": seconds, "dead": len(letters)}


def with_failures(folder: Path, bootstrap: str, topic: str, n: int, *, percent: int, cut: float | None) -> Any:
    """Let *percent* of the records fail every try."""
    create(bootstrap, f"{topic}.dlq")
    return pyrallel(folder, bootstrap, topic, n, engine="async", ordering="key_hash", percent=percent, cut=cut)


# ---------------------------------------------------------------------- latency


def latency(_folder: Path, bootstrap: str, topic: str, n: int, *, rate: int, who: str) -> dict[str, Any]:
    """Return how long records take from being sent to being handled, at a pace that everybody keeps."""
    logging.disable(logging.CRITICAL)
    create(bootstrap, topic)
    return asyncio.run(_latency(bootstrap, topic, n, rate, who))


async def _latency(bootstrap: str, topic: str, n: int, rate: int, who: str) -> dict[str, Any]:
    seen = Latency()
    ending = await _PEERS[who](bootstrap, topic, seen)
    await asyncio.sleep(2)  # it joins its group
    sending: subprocess.Popen[bytes] = begin_producing(bootstrap, topic, n, rate)
    try:
        await wait_for(lambda: len(seen.healthy) >= n, 60)
    finally:
        sending.wait()
    await ending()
    return seen.answer()


async def _pyrallel_listening(bootstrap: str, topic: str, seen: Latency) -> Callable[[], Any]:
    from pyrallel_consumer import PyrallelConsumer  # noqa: PLC0415

    async def work(item: Any) -> None:
        seen.note(json.loads(item.payload))

    config = configured(bootstrap, uuid.uuid4().hex, "async", "key_hash")
    consumer = PyrallelConsumer(config=config, worker=work, topic=topic)
    await consumer.start()
    return consumer.stop


async def _faststream_listening(bootstrap: str, topic: str, seen: Latency) -> Callable[[], Any]:
    from faststream.confluent import KafkaBroker  # noqa: PLC0415

    broker = KafkaBroker(bootstrap, logger=None)

    async def handle(content: dict) -> None:  # type: ignore[type-arg]
        seen.note(content)

    broker.subscriber(topic, group_id=uuid.uuid4().hex, auto_offset_reset="earliest")(handle)
    await broker.start()
    return broker.stop


_PEERS: dict[str, Callable[..., Any]] = {
    "pyrallel-consumer": _pyrallel_listening,
    "FastStream": _faststream_listening,
}
