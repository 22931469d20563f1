"""
Several members of one group, each a process of its own.

Owns how their work is put before all of them at once: they share out an empty topic first, then
one transaction of everything is committed, before which none of them can read any of it. The
clock runs from that commit to the last of theirs, so it contains the wait for the first fetch.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.fresh import ROOT, environment
from benchmarks.kafka_topics import PARTITIONS, Committed, create, delete, ends, offered
from benchmarks.kafka_work import Watch
from benchmarks.letters import Marks

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.sources.kafka import ParallelConsumer, Record

_LIMIT = 120.0  # seconds


def members(folder: Path, bootstrap: str, n: int, *, processes: int, ordering: str, sleep: float) -> dict[str, Any]:
    """Let *processes* consumers of one group handle *n* records."""
    topic, group = f"shared-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    create(bootstrap, topic)
    words = [bootstrap, topic, group, str(n), ordering, str(sleep)]
    running = [_start(folder / f"handled-{place}", words) for place in range(processes)]
    try:
        _until_shared(running, folder)
        offer = offered(bootstrap, topic, n)
        wanted = ends(bootstrap, topic)
        assert sum(wanted.values()) == n
        began = time.perf_counter()
        offer.commit_transaction()
        _until_committed(Committed(bootstrap, group, topic), wanted, running)
        seconds = time.perf_counter() - began
    finally:
        for each in running:
            each.send_signal(signal.SIGTERM)
    assert [each.wait(_LIMIT) for each in running] == [0] * processes
    _check(folder, n, processes)
    delete(bootstrap, topic)
    return {"n": n, "seconds": seconds}


def _start(book: Path, words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.kafka_members", str(book), *words], cwd=ROOT, env=environment()
    )


def _until_shared(running: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Wait until each has its share of the partitions."""
    shares = [folder / f"handled-{place}.share" for place in range(len(running))]
    share = str(PARTITIONS // len(running))
    _wait(lambda: all(each.exists() and each.read_text() == share for each in shares), running)


def _until_committed(look: Committed, wanted: dict[int, int], running: list[subprocess.Popen[bytes]]) -> None:
    """Wait until every record is committed; the transaction's marks take offsets, too, so a sum would not tell."""
    _wait(lambda: all(place.offset >= wanted[place.partition] for place in look.places()), running)


def _wait(condition: Callable[[], bool], running: list[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + _LIMIT
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        assert all(each.poll() is None for each in running), "a member has ended"
        time.sleep(0.02)


def _check(folder: Path, n: int, processes: int) -> None:
    together = Marks(n)
    for place in range(processes):
        counts = (folder / f"handled-{place}").read_bytes()
        assert len(counts) - counts.count(0) > n // (2 * processes), "one member did nearly nothing"
        together.counts = bytearray(map(int.__add__, together.counts, counts))
    together.check(n)


# ---------------------------------------------------------------------- one member


def _member(words: list[str]) -> None:
    """Consume until told to stop, and leave behind what was handled."""
    from redrive.sources.kafka import KafkaConfig, ParallelConsumer  # noqa: PLC0415

    name, bootstrap, topic, group, n, ordering, sleep = words
    book, watch, pause = Path(name), Watch(int(n)), float(sleep)

    async def work(record: Record) -> None:
        watch.note(record.value or b"")
        await asyncio.sleep(pause)

    order: Any = ordering
    consumer = ParallelConsumer(
        [topic], work, group=group, ordering=order, kafka=KafkaConfig(bootstrap_servers=bootstrap)
    )
    share = book.with_suffix(".share")
    asyncio.run(_run(consumer, lambda: share.write_text(str(consumer.assigned))))
    book.write_bytes(watch.marks.counts)


async def _run(consumer: ParallelConsumer, tell: Callable[[], object]) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
    running = asyncio.ensure_future(consumer.run())
    while not running.done():
        tell()
        await asyncio.wait([running], timeout=0.2)
    await running


if __name__ == "__main__":
    _member(sys.argv[1:])
