"""
Coroutines that handle records one after the other, written by hand.

Owns what redrive is set beside where handlers wait: as many lanes as the order allows, without
Kafka, and the same lanes fed from a topic. Neither retries, limits time, keeps dead letters or
tracks offsets; the fed ones commit once, at the end. So they are limits, not rivals.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

from benchmarks.kafka_topics import body
from benchmarks.kafka_work import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    Handle = Callable[[bytes], Coroutine[Any, Any, None]]

_ENOUGH = 10_000  # records in memory
_REST = 0.001  # seconds between two looks for more


def bare_lanes(_folder: Path, lanes: int, n: int, sleep: float) -> dict[str, Any]:
    """Do the same work without Kafka: *lanes* coroutines, each its records one after the other."""
    values, watch = [body(i) for i in range(n)], Watch(n)
    handle = _handler(watch, sleep)

    async def lane(mine: list[bytes]) -> None:
        for value in mine:
            await handle(value)

    async def all_lanes() -> float:
        start = time.perf_counter()
        await asyncio.gather(*(lane(values[first::lanes]) for first in range(lanes)))
        return time.perf_counter() - start

    return watch.answer(n, asyncio.run(all_lanes()))


def fed_lanes(
    _folder: Path, bootstrap: str, topic: str, n: int, *, ordering: str, lanes: int, sleep: float
) -> dict[str, Any]:
    """Do the same work on the records of *topic*: `consume(500)` into the lanes, and a commit when all is done."""
    watch, numbers = Watch(n), count()
    key_of = {
        "key_hash": lambda message: message.key(),
        "partition": lambda message: message.partition(),
        "unordered": lambda _message: next(numbers) % lanes,
    }[ordering]
    return watch.answer(n, asyncio.run(_feed(bootstrap, topic, n, _Lanes(_handler(watch, sleep)), watch, key_of)))


def _handler(watch: Watch, sleep: float) -> Handle:
    async def handle(value: bytes) -> None:
        watch.note(value)
        await asyncio.sleep(sleep)

    return handle


class _Lanes:
    """Lines of values, each with a coroutine that lives for as long as its line is not empty."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._lines: dict[Any, deque[bytes]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self.open = 0

    def enter(self, key: Any, value: bytes) -> None:
        """Let *value* wait for its turn in the line of *key*."""
        self.open += 1
        line = self._lines.get(key)
        if line is not None:
            line.append(value)
            return
        self._lines[key] = line = deque([value])
        task = asyncio.ensure_future(self._run(key, line))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, key: Any, line: deque[bytes]) -> None:
        while line:
            await self._handle(line.popleft())
            self.open -= 1
        del self._lines[key]


async def _feed(bootstrap: str, topic: str, n: int, lanes: _Lanes, watch: Watch, key_of: Callable[[Any], Any]) -> float:
    from confluent_kafka import Consumer  # noqa: PLC0415

    consumer, received = Consumer({
        "bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    }), 0  # fmt: skip
    consumer.subscribe([topic], on_assign=lambda *_: watch.begin())
    while received < n or lanes.open:
        while lanes.open < _ENOUGH and (messages := consumer.consume(500, 0)):
            for message in messages:
                if message.error() is None:
                    received += 1
                    lanes.enter(key_of(message), message.value())
        await asyncio.sleep(_REST)
    consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
    seconds = time.perf_counter() - watch.began
    consumer.close()
    return seconds
