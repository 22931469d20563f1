"""
The queue of failed workflows beside the one that it replaces.

Owns the contenders, the steps and the sizes: enqueue, statistics, retries and bytes of a task, on SQLite and in memory,
beside Mahavishnu's own queue (`workflow_peer`). Also measures statistics of small and large queues.
"""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import workflow_peer
from benchmarks.fresh import measure, new_folder
from benchmarks.report import Ratio, Report, Row, Table
from redrive import Redrive
from redrive import RetryPolicy as Policy
from redrive.engine.clock import new_id
from redrive.sources.workflow import mapping
from redrive.sources.workflow.retrying.running import failure_of
from redrive.workflow import DeadLetterQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

CALLS = 20  # of get_statistics
AT_ONCE = 64  # callers that enqueue at once, and retries that run at once
_TITLES = {
    "enqueue": ("Enqueue a failed task, one caller", "µs a task"),
    "together": (f"Enqueue a failed task, {AT_ONCE} callers at once", "µs a task"),
    "statistics": ("get_statistics of that queue", "µs a call"),
    "retry": ("Retry all tasks, all succeed", "µs a task"),
    "bytes": ("What a task takes: SQLite on disk, others in memory", "bytes a task"),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much and how often."""

    tasks: int
    runs: int
    small: int
    large: int


FULL = Sizes(tasks=10_000, runs=3, small=100, large=100_000)
QUICK = Sizes(tasks=300, runs=1, small=100, large=3_000)


def run(*, quick: bool) -> Report:
    """Measure each contender in a process of its own."""
    sizes = QUICK if quick else FULL
    report = Report(name="workflow", quick=quick)
    peer = workflow_peer.told()
    with new_folder() as folder:
        cases = {"sqlite": ours, "memory": ours, peer.name: workflow_peer.steps}
        found = {
            name: [measure(case, folder, tasks=sizes.tasks, name=name) for _ in range(sizes.runs)]
            for name, case in cases.items()
        }
        sized = {
            name: {
                size: [measure(case, folder, tasks=size, name=name) for _ in range(sizes.runs)]
                for size in (sizes.small, sizes.large)
            }
            for name, case in (("sqlite", sized_ours), (peer.name, workflow_peer.sized))
        }
    report.tables += [_table(step, found, sizes.tasks, peer) for step in _TITLES]
    report.tables.append(_statistics(sized, peer))
    report.ratios.append(_growth(sized["sqlite"], sizes))
    report.notes.append(peer.note)
    return report


def _table(step: str, found: dict[str, list[dict[str, float]]], tasks: int, peer: workflow_peer.Told) -> Table:
    title, unit = _TITLES[step]
    rows = [_row(name, tuple(one[step] for one in each), tasks, peer) for name, each in found.items()]
    return Table(title=title, unit=unit, rows=rows)


def _row(name: str, runs: tuple[float, ...], n: int, peer: workflow_peer.Told) -> Row:
    if name == peer.name:
        return Row(name=name, setting="in the process, lost with it", n=n, runs=runs)
    return Row(name="redrive", setting=name, n=n, runs=runs, ours=True, durable="FULL" if name == "sqlite" else "")


def _statistics(sized: dict[str, dict[int, list[dict[str, float]]]], peer: workflow_peer.Told) -> Table:
    rows = [
        _row(name, tuple(one["statistics"] for one in each), size, peer)
        for name, by_size in sized.items()
        for size, each in by_size.items()
    ]
    return Table(title="get_statistics of small and large queues", unit="µs a call", rows=rows)


def _growth(by_size: dict[int, list[dict[str, float]]], sizes: Sizes) -> Ratio:
    small, large = (min(one["statistics"] for one in by_size[size]) for size in (sizes.small, sizes.large))
    what = f"redrive: get_statistics at {sizes.large:,} tasks over at {sizes.small:,}"
    return Ratio(what=what, value=large / small, bar=2.0, at_least=False)


# ---------------------------------------------------------------------- steps that every contender takes


async def timed(count: int, step: Callable[[], Awaitable[Any]]) -> float:
    """Return the microseconds that each of *count* parts of *step* took."""
    began = time.perf_counter()
    await step()
    return (time.perf_counter() - began) / count * 1e6


async def together(count: int, one: Callable[[int], Awaitable[Any]]) -> None:
    """Await *one* for every number below *count*, AT_ONCE at a time."""
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await one(number)

    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))


async def callback(_task: dict[str, Any], _repos: list[str]) -> None:
    """Succeed."""


# ---------------------------------------------------------------------- redrive


def ours(folder: Path, *, tasks: int, name: str) -> dict[str, float]:
    """Measure redrive on one store."""
    file = folder / f"{new_id()}.db"
    found = asyncio.run(_ours(f"sqlite:///{file}" if name == "sqlite" else "memory://", tasks))
    found["bytes"] = file.stat().st_size / (2 * tasks) if file.exists() else asyncio.run(_in_memory(tasks))
    return found


async def _ours(url: str, tasks: int) -> dict[str, float]:
    app = Redrive(url)
    dlq = DeadLetterQueue(max_size=1_000_000, store=app, concurrency=AT_ONCE)

    async def enqueue(number: int, prefix: str = "wf") -> None:
        await dlq.enqueue(f"{prefix}_{number}", {"n": number}, ["/repo"], "timeout", "immediate")

    async def one_by_one() -> None:
        for number in range(tasks):
            await enqueue(number)

    async def count() -> None:
        for _ in range(CALLS):
            await dlq.get_statistics()

    found = {"enqueue": await timed(tasks, one_by_one)}
    found["together"] = await timed(tasks, lambda: together(tasks, lambda number: enqueue(number, "more")))
    found["statistics"] = await timed(CALLS, count)
    found["retry"] = await timed(2 * tasks, lambda: dlq.run_cycle(callback))
    completed = (await dlq.get_statistics())["status_breakdown"]["completed"]
    assert completed == 2 * tasks, f"{completed} of {2 * tasks} tasks were handled"
    await app.close()
    return found


async def _in_memory(tasks: int) -> float:
    app = Redrive("memory://")
    await app.open()
    tracemalloc.start()
    await app.store.put(drafts(tasks))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await app.close()
    return used / tasks


def drafts(count: int) -> list[Any]:
    """Return failed tasks as the queue would keep them."""
    failure, terms = failure_of("timeout"), mapping.Terms(3, error="timeout")
    return [
        mapping.draft_of(
            new_id(), "workflow", f"wf_{n}", mapping.Call({"n": n}, ["/repo"]), failure, Policy.EXPONENTIAL, terms, 0.5
        )
        for n in range(count)
    ]


def sized_ours(folder: Path, *, tasks: int, name: str) -> dict[str, float]:
    """Measure statistics of a queue of so many tasks."""
    return asyncio.run(_sized(f"sqlite:///{folder}/{new_id()}.db" if name == "sqlite" else "memory://", tasks))


async def _sized(url: str, tasks: int) -> dict[str, float]:
    app = Redrive(url)
    dlq = DeadLetterQueue(max_size=1_000_000, store=app)
    await app.open()
    made = drafts(tasks)
    for start in range(0, tasks, 1_000):
        await app.store.put(made[start : start + 1_000])

    async def count() -> None:
        for _ in range(CALLS):
            await dlq.get_statistics()

    await count()
    took = await timed(CALLS, count)
    size = (await dlq.get_statistics())["queue_size"]
    assert size == tasks, f"{size} of {tasks} tasks were counted"
    await app.close()
    return {"statistics": took}
