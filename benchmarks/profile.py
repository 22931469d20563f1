"""
Where the time of a drain goes.

Owns the look inside: the event loop's thread and the store's writer thread, each under a
profiler of its own, and the CPU time of each. Measures nothing that is quoted: a profiled
drain is a slow one.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.fresh import new_folder
from benchmarks.letters import KIND, Marks
from benchmarks.sqlite_redrive import app_on, fill, handler_for

if TYPE_CHECKING:
    from redrive import Redrive


def show(count: int) -> None:
    """Drain *count* letters and print what took the time."""
    try:
        import pyinstrument  # noqa: PLC0415 - only this look needs it
    except ImportError:
        raise SystemExit("cannot profile: pyinstrument is not installed; pip install pyinstrument") from None
    with new_folder() as folder:
        fill(folder, count)
        bare = asyncio.run(_drain(folder, count, ()))
        fill(folder, count)
        profilers = [pyinstrument.Profiler(interval=0.0005, async_mode="disabled") for _ in range(2)]
        spent = asyncio.run(_drain(folder, count, profilers))
    for name, profiler in zip(("the event loop", "the writer"), profilers, strict=True):
        print(f"\n=== {name} {'=' * 60}{profiler.output_text(show_all=False, color=True)}")
    print(f"{count:,} letters: {count / bare:,.0f} a second, {count / spent:,.0f} while profiled")


async def _drain(folder: Path, count: int, profilers: Any) -> float:
    marks, app = Marks(count), app_on(folder)
    app.handler(KIND)(handler_for("async", marks))
    async with app:
        await _both(app, profilers, "start")
        cpu, start = _cpu_by_thread(), time.perf_counter()
        await app.run(until_idle=True)
        spent = time.perf_counter() - start
        if not profilers:
            _show_cpu(cpu, spent)
        await _both(app, profilers, "stop")
    marks.check(count)
    return spent


async def _both(app: Redrive, profilers: Any, verb: str) -> None:
    """Start or stop one profiler here and one in the writer's thread."""
    if profilers:
        mine, writers = profilers
        await app.store._write(lambda _turn: getattr(writers, verb)())  # type: ignore[attr-defined] # noqa: SLF001
        getattr(mine, verb)()


def _cpu_by_thread() -> dict[int, float]:
    """Return CPU seconds by native thread id."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for thread in threading.enumerate():
        fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
        found[thread.native_id or 0] = (int(fields[11]) + int(fields[12])) / tick
    return found


def _show_cpu(before: dict[int, float], spent: float) -> None:
    now = _cpu_by_thread()
    for thread in threading.enumerate():
        used = now.get(thread.native_id or 0, 0.0) - before.get(thread.native_id or 0, 0.0)
        print(f"{thread.name}: {used:.2f} s of CPU in {spent:.2f} s")
