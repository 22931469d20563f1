"""
What the handlers of the Kafka benchmark do, and the evidence that they leave.

Owns the work, the same for everybody: decode the JSON, note the id, then nothing, a sleep or
CPU work; and the clock, from the first assignment (or the first record seen, where a contender
does not show its assignment) to the last commit, as the broker has it. Knows no contender.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from benchmarks.kafka_topics import body
from benchmarks.letters import Marks, check_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from benchmarks.kafka_topics import Committed

LINES = "BENCH_LINES"  # where handlers in child processes note what they handled
SLEEPS = {"no-op": 0.0, "0.5 ms": 0.0005, "5 ms": 0.005}
HASHES = 2_000  # of sha256, one after the other: about a millisecond of CPU
_LOOK = 0.05  # seconds between two questions to the broker


class Watch:
    """The evidence of one run: which ids were handled, from when to when."""

    def __init__(self, n: int) -> None:
        self.marks = Marks(n)
        self.began = 0.0

    def note(self, value: bytes | bytearray | memoryview | str) -> int:
        """Decode a record and note it."""
        i = int(json.loads(value)["i"])
        self.marks.counts[i] += 1
        if not self.began:
            self.began = time.perf_counter()
        return i

    def begin(self) -> None:
        """Start the clock."""
        self.began = self.began or time.perf_counter()

    async def until_committed(self, look: Committed, n: int, cut: float | None) -> tuple[int, float]:
        """Wait until *n* records are committed, or *cut* seconds have passed; return how many were, and seconds."""
        started = time.perf_counter()
        while True:
            await asyncio.sleep(_LOOK)
            committed = await asyncio.to_thread(look.total)
            now = time.perf_counter()
            if committed >= n or (cut is not None and now - started > cut):
                return committed, now - (self.began or started)

    def answer(self, committed: int, seconds: float) -> dict[str, Any]:
        """Return the figure; stop if something was committed that nobody handled, or handled twice."""
        handled = len(self.marks.counts) - self.marks.counts.count(0)
        if committed == len(self.marks.counts):
            self.marks.check(committed)
        assert handled >= committed, f"{committed} committed, {handled} handled"
        return {"n": committed, "seconds": seconds}


def hash_a_lot(data: bytes) -> None:
    """Use the CPU."""
    for _ in range(HASHES):
        data = hashlib.sha256(data).digest()


# ---------------------------------------------------------------------- in child processes

_opened: list[int] = []


def note_line(value: bytes) -> None:
    """Note, from another process, that a record was handled: one short append is atomic."""
    if not _opened:
        _opened.append(os.open(os.environ[LINES], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    os.write(_opened[0], b"%d\n" % json.loads(value)["i"])


def check_noted(path: Path, committed: int, n: int) -> None:
    """Stop unless everything that was committed was handled, and once if nothing was cut short."""
    if committed == n:
        check_lines(path, n)
        return
    noted = len(set(path.read_text().split())) if path.exists() else 0
    assert noted >= committed, f"{committed} committed, {noted} handled"


# ---------------------------------------------------------------------- bare processes


def bare_processes(_folder: Path, processes: int, n: int) -> dict[str, Any]:
    """Use the CPU in *processes* at once without Kafka: what the cores give, which may be halves of one."""
    values = [body(i) for i in range(n)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_hash_all, [values[:50]] * processes * 4))  # they have started
        start = time.perf_counter()
        done = sum(pool.map(_hash_all, [values[first::processes] for first in range(processes)]))
        seconds = time.perf_counter() - start
    assert done == n, f"{done} of {n} done"
    return {"n": n, "seconds": seconds}


def _hash_all(values: list[bytes]) -> int:
    for value in values:
        hash_a_lot(value)
    return len(values)


# ---------------------------------------------------------------------- latency


class Latency:
    """How long records took from being sent to being handled."""

    def __init__(self) -> None:
        self.healthy: list[float] = []

    def note(self, content: dict[str, Any]) -> None:
        """Note a record that is handled now; the first half second warms up."""
        self.healthy.append((time.time_ns() - content["at"]) / 1e6)

    def answer(self) -> dict[str, float]:
        """Return the quantiles in ms, of all but the first tenth: that is the start."""
        times = sorted(self.healthy[len(self.healthy) // 10 :])
        return {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "n": len(times)}


async def wait_for(condition: Callable[[], bool], limit: float, alive: Awaitable[Any] | None = None) -> None:
    """Wait until *condition* holds; stop after *limit* seconds, or if *alive* has ended."""
    end = time.monotonic() + limit
    while not condition():
        if isinstance(alive, asyncio.Future) and alive.done():
            alive.result()
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.005)
