"""
The queue of failed workflows beside one of the shape that it replaces.

Owns the contenders: redrive on SQLite and in memory, and a queue of the same shape as Mahavishnu's (a list in the
process, statistics by a walk over it, retries one after the other). Measures enqueue, statistics and retries.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from benchmarks.fresh import measure, new_folder
from benchmarks.report import Report, Row, Table
from redrive import Redrive
from redrive.workflow import DeadLetterQueue

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = "a list in the process (same shape as Mahavishnu's)"
_TITLES = {
    "enqueue": ("Enqueue a failed task", "µs a task"),
    "statistics": ("get_statistics of the whole queue", "µs a call"),
    "retry": ("Retry a task, all succeed", "µs a task"),
}


def run(*, quick: bool) -> Report:
    """Measure each contender in a process of its own."""
    report = Report(name="workflow", quick=quick)
    tasks, runs = (300, 1) if quick else (10_000, 3)
    with new_folder() as folder:
        found = {
            name: [measure(case, folder, tasks=tasks, name=name) for _ in range(runs)]
            for name, case in (("sqlite", ours), ("memory", ours), (SHAPE, theirs))
        }
    for step, (title, unit) in _TITLES.items():
        rows = [
            Row(
                name="redrive" if name != SHAPE else SHAPE,
                setting=name if name != SHAPE else "",
                n=tasks,
                runs=tuple(float(one[step]) for one in each),
                ours=name != SHAPE,
            )
            for name, each in found.items()
        ]
        report.tables.append(Table(title=title, unit=unit, rows=rows))
    return report


async def _timed(count: int, step: Any) -> float:
    began = time.perf_counter()
    await step()
    return (time.perf_counter() - began) / count * 1e6


def ours(folder: Path, *, tasks: int, name: str) -> dict[str, float]:
    """Measure redrive on one store."""
    return asyncio.run(_ours(f"sqlite:///{folder}/workflow.db" if name == "sqlite" else "memory://", tasks))


async def _ours(url: str, tasks: int) -> dict[str, float]:
    app = Redrive(url)
    dlq = DeadLetterQueue(max_size=100_000, store=app, concurrency=64)

    async def callback(_task: dict[str, Any], _repos: list[str]) -> None:
        return None

    async def enqueue() -> None:
        for number in range(tasks):
            await dlq.enqueue(f"wf_{number}", {"n": number}, [], "timeout", "immediate")

    async def count() -> None:
        for _ in range(20):
            await dlq.get_statistics()

    found = {"enqueue": await _timed(tasks, enqueue), "statistics": await _timed(20, count)}
    found["retry"] = await _timed(tasks, lambda: dlq.run_cycle(callback))
    completed = (await dlq.get_statistics())["status_breakdown"]["completed"]
    assert completed == tasks, f"{completed} of {tasks} tasks were handled"
    await app.close()
    return found


def theirs(folder: Path, *, tasks: int, name: str) -> dict[str, float]:  # noqa: ARG001 - as every case
    """Measure a list in the process."""
    return asyncio.run(_theirs(tasks))


def _failed(number: int) -> dict[str, Any]:
    return {"task_id": f"wf_{number}", "status": "pending", "task": {"n": number}, "error": "timeout"}


async def _theirs(tasks: int) -> dict[str, float]:
    kept: list[dict[str, Any]] = []

    async def enqueue() -> None:
        for number in range(tasks):
            kept.append(_failed(number))  # noqa: PERF401 - one call each, as ours

    async def count() -> None:
        for _ in range(20):
            Counter(task["status"] for task in kept)

    async def callback(_task: dict[str, Any]) -> None:
        return None

    async def retry() -> None:
        for task in [task for task in kept if task["status"] == "pending"]:
            await callback(task["task"])
            task["status"] = "completed"

    return {
        "enqueue": await _timed(tasks, enqueue),
        "statistics": await _timed(20, count),
        "retry": await _timed(tasks, retry),
    }
