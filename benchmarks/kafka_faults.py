"""
What is lost when something breaks: pyrallel-consumer and redrive in the same three scenes.

Owns the scenes and their evidence: handler calls noted in a file outside of the consumer,
offsets and dead letters as the broker has them. A record is lost if it was committed though
nobody handled it and no dead letter says so, or if it is never handled at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.kafka_peers import configured
from benchmarks.kafka_topics import Committed, create, filled, ids_in
from benchmarks.kafka_work import LINES, note_line
from redrive.errors import SettingsError
from redrive.sources.kafka import ExecutionConfig, KafkaConfig, ParallelConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

FEW = 20
FAILING = frozenset({3, 7, 11})
MANY = 200
KILLER = 50
_SHORT = {"retry_backoff_ms": 10, "retry_jitter_ms": 0}


def no_dead_letter_topic(folder: Path, bootstrap: str, *, who: str, limit: float) -> dict[str, Any]:
    """Three of twenty records fail, their dead-letter topic does not exist, and the broker makes none by itself."""
    topic = _prepare(folder, bootstrap, FEW)
    committed = asyncio.run(_run(who, bootstrap, topic, FEW, limit, engine="async"))
    return {"n": FEW, "lost": sum(i < committed for i in FAILING)}


def no_tries(folder: Path, bootstrap: str, *, who: str, limit: float) -> dict[str, Any]:
    """`max_retries=0`: nobody means that nothing shall be handled."""
    topic = _prepare(folder, bootstrap, FEW)
    create(bootstrap, f"{topic}.dlq", 1)
    try:
        committed = asyncio.run(_run(who, bootstrap, topic, FEW, limit, engine="async", max_retries=0))
    except SettingsError:  # refused at the start
        return {"n": FEW, "lost": 0}
    handled = _noted(folder) | set(ids_in(bootstrap, f"{topic}.dlq"))
    return {"n": FEW, "lost": sum(i < committed for i in range(FEW) if i not in handled)}


def a_worker_dies(folder: Path, bootstrap: str, *, who: str, limit: float) -> dict[str, Any]:
    """Of two worker processes one is killed, once, in the middle of its work."""
    topic = _prepare(folder, bootstrap, MANY)
    create(bootstrap, f"{topic}.dlq", 1)
    asyncio.run(_run(who, bootstrap, topic, MANY, limit, engine="process"))
    return {"n": MANY, "lost": MANY - len(_noted(folder) | set(ids_in(bootstrap, f"{topic}.dlq")))}


# ---------------------------------------------------------------------- the stage


def _prepare(folder: Path, bootstrap: str, n: int) -> str:
    logging.disable(logging.CRITICAL)
    os.environ[LINES] = str(folder / "handled.txt")
    return filled(bootstrap, f"fault-{uuid.uuid4().hex[:8]}", n, partitions=1)


def _noted(folder: Path) -> set[int]:
    path = folder / "handled.txt"
    return {int(line) for line in path.read_text().split()} if path.exists() else set()


async def _run(who: str, bootstrap: str, topic: str, n: int, limit: float, **how: Any) -> int:
    """Consume until everything is committed or the time is up; return how far it was committed."""
    group = uuid.uuid4().hex
    stop = await _CONSUMERS[who](bootstrap, topic, group, **how)
    look, end = Committed(bootstrap, group, topic, 1), time.monotonic() + limit
    committed = 0
    while committed < n and time.monotonic() < end:
        await asyncio.sleep(0.1)
        committed = await asyncio.to_thread(look.total)
    with contextlib.suppress(Exception):
        await asyncio.wait_for(stop(), 10)
    return committed


async def _pyrallel(bootstrap: str, topic: str, group: str, *, engine: str, max_retries: int = 3) -> Callable[[], Any]:
    from pyrallel_consumer import PyrallelConsumer  # noqa: PLC0415

    config = configured(bootstrap, group, engine, "key_hash", best=False)
    execution = config.parallel_consumer.execution
    execution.max_retries, execution.retry_backoff_ms, execution.retry_jitter_ms = max_retries, 10, 0
    execution.process_config.process_count, execution.process_config.batch_size = 2, 64
    worker = item_in_process if engine == "process" else item
    consumer = PyrallelConsumer(config=config, worker=worker, topic=topic)
    await consumer.start()
    return consumer.stop


async def _redrive(bootstrap: str, topic: str, group: str, *, engine: Any, max_retries: int = 3) -> Callable[[], Any]:
    execution = ExecutionConfig(
        mode=engine, max_retries=max_retries, process_count=2, shutdown_drain_timeout_ms=500, **_SHORT
    )
    kafka = KafkaConfig(bootstrap_servers=bootstrap, dlq_create_topics=False)
    worker = record_in_process if engine == "process" else record
    consumer = ParallelConsumer([topic], worker, group=group, execution=execution, kafka=kafka)
    running = asyncio.ensure_future(consumer.run())

    async def stop() -> None:
        consumer.stop()
        await running

    return stop


_CONSUMERS: dict[str, Callable[..., Any]] = {"pyrallel-consumer": _pyrallel, "redrive": _redrive}


async def item(work_item: Any) -> None:
    """Handle what pyrallel-consumer gives."""
    _fail_or_note(work_item.payload)


async def record(given: Any) -> None:
    """Handle what redrive gives."""
    _fail_or_note(given.value)


def item_in_process(work_item: Any) -> None:
    """Do the same in a process that may be killed."""
    _die_or_note(work_item.payload)


def record_in_process(given: Any) -> None:
    """Do the same in a process that may be killed."""
    _die_or_note(given.value)


def _fail_or_note(value: bytes) -> None:
    if json.loads(value)["i"] in FAILING:
        raise ValueError("it never works")
    note_line(value)


def _die_or_note(value: bytes) -> None:
    marker = Path(os.environ[LINES]).with_suffix(".killed")
    if json.loads(value)["i"] == KILLER and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    note_line(value)
