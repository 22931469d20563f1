"""
The queue that the workflow queue replaces.

Owns where Mahavishnu's own module comes from: a wheel that `make bench` downloads beside the benchmarks' environment.
The wheel wants a newer Python and many dependencies; the module of its queue needs neither, so it is imported from
the wheel by itself. Without the wheel, a queue of the same shape takes its place, and the report says so.
"""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
import types
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

_WHEELS = Path(sys.prefix) / "mahavishnu"
_CALLS = 20
SHAPE = "a list in the process"


class Told(NamedTuple):
    """Which queue was measured."""

    name: str
    note: str


def told() -> Told:
    """Say which queue `steps` and `sized` measure."""
    wheel = _wheel()
    if wheel is None:
        return Told(SHAPE, "The peer is a queue of the same shape as Mahavishnu's: its wheel could not be had.")
    note = "The peer is Mahavishnu's own module, imported from its wheel, without OpenSearch."
    return Told(f"mahavishnu {wheel.name.split('-')[1]}", note)


def _wheel() -> Path | None:
    return max(_WHEELS.glob("mahavishnu-*.whl"), default=None)


class Shape:
    """A list, statistics by a walk over it, retries one after the other."""

    def __init__(self, max_size: int) -> None:
        self._queue: list[dict[str, Any]] = []
        self._max_size = max_size

    async def enqueue(self, task_id: str, task: dict[str, Any], repos: list[str], error: str, _policy: object) -> None:
        """Keep a task."""
        if len(self._queue) >= self._max_size:
            raise ValueError("full")
        self._queue.append({"task_id": task_id, "status": "pending", "task": task, "repos": repos, "error": error})

    async def get_statistics(self) -> dict[str, Any]:
        """Count."""
        return {"queue_size": len(self._queue), "status": Counter(task["status"] for task in self._queue)}

    async def retry_all(self, callback: Any) -> None:
        """Retry every task."""
        for task in list(self._queue):
            await callback(task["task"], task["repos"])
            self._queue.remove(task)


def _open(max_size: int) -> tuple[Any, Any, Any]:
    """Return a queue, its policy for retries at once, and what runs them."""
    wheel = _wheel()
    if wheel is None:
        shape = Shape(max_size)
        return shape, "immediate", shape.retry_all
    for name in ("mahavishnu", "mahavishnu.core"):  # without what their own __init__ imports
        package = types.ModuleType(name)
        package.__path__ = [f"{wheel}/{name.replace('.', '/')}"]
        sys.modules[name] = package
    from mahavishnu.core import dead_letter_queue  # noqa: PLC0415 - from the wheel

    queue = dead_letter_queue.DeadLetterQueue(max_size=max_size)
    return queue, dead_letter_queue.RetryPolicy.IMMEDIATE, queue._process_ready_tasks  # noqa: SLF001 - what its loop calls


async def _callback(_task: dict[str, Any], _repos: list[str]) -> None:
    return None


def steps(folder: Path, *, tasks: int, name: str) -> dict[str, float]:  # noqa: ARG001 - as every case
    """Measure enqueue, statistics, retries and bytes."""
    return asyncio.run(_steps(tasks))


async def _steps(tasks: int) -> dict[str, float]:
    from benchmarks.workflow import timed, together  # noqa: PLC0415 - it imports this module

    queue, policy, retry_all = _open(3 * tasks)

    async def enqueue(number: int, prefix: str = "wf") -> None:
        await queue.enqueue(f"{prefix}_{number}", {"n": number}, ["/repo"], "timeout", policy)

    async def one_by_one() -> None:
        for number in range(tasks):
            await enqueue(number)

    async def count() -> None:
        for _ in range(_CALLS):
            await queue.get_statistics()

    tracemalloc.start()
    await one_by_one()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    queue, policy, retry_all = _open(3 * tasks)
    found = {"bytes": used / tasks, "enqueue": await timed(tasks, one_by_one)}
    found["together"] = await timed(tasks, lambda: together(tasks, lambda number: enqueue(number, "more")))
    found["statistics"] = await timed(_CALLS, count)
    found["retry"] = await timed(2 * tasks, lambda: retry_all(_callback))
    left = (await queue.get_statistics())["queue_size"]
    assert left == 0, f"{left} of {2 * tasks} tasks were not handled"
    return found


def sized(folder: Path, *, tasks: int, name: str) -> dict[str, float]:  # noqa: ARG001 - as every case
    """Measure statistics of a queue of so many tasks."""
    return asyncio.run(_sized(tasks))


async def _sized(tasks: int) -> dict[str, float]:
    from benchmarks.workflow import timed  # noqa: PLC0415 - it imports this module

    queue, policy, _ = _open(tasks)
    for number in range(tasks):
        await queue.enqueue(f"wf_{number}", {"n": number}, ["/repo"], "timeout", policy)

    async def count() -> None:
        for _ in range(_CALLS):
            await queue.get_statistics()

    return {"statistics": await timed(_CALLS, count)}
