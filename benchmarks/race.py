"""
Several processes that begin together.

Owns the starting line, the clock between it and the last to finish, and the proof that they
handled each letter once between them. Knows no contender: work is an async function
`work(marks, go, **arguments)` that gets ready, calls `go()`, handles what there is, and
returns the moment at which it had finished.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import multiprocessing
import time
from typing import TYPE_CHECKING, Any

from benchmarks.letters import Marks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    Work = Callable[..., Awaitable[float]]

_PATIENCE = 300.0  # seconds until everybody stands at the line


def race(work: Work, folder: Path, n: int, processes: int, **arguments: Any) -> dict[str, Any]:
    """Let *processes* of them handle *n* letters; return how long it took and how many each handled."""
    context = multiprocessing.get_context("spawn")
    line, finished = context.Barrier(processes + 1), context.Array("d", processes)
    runners = [
        context.Process(
            target=_run,
            args=(f"{work.__module__}:{work.__name__}", place, n, folder, arguments),
            kwargs={"line": line, "finished": finished},
        )
        for place in range(processes)
    ]
    for runner in runners:
        runner.start()
    line.wait(_PATIENCE)
    start = time.perf_counter()
    for runner in runners:
        runner.join()
    assert not any(runner.exitcode for runner in runners), [runner.exitcode for runner in runners]
    return {"n": n, "seconds": max(finished) - start, "shares": _check(folder, n, processes)}


def _run(name: str, place: int, n: int, folder: Path, arguments: dict[str, Any], *, line: Any, finished: Any) -> None:
    logging.disable(logging.WARNING)  # a line per job would measure the terminal
    module, _, function = name.partition(":")
    work = getattr(importlib.import_module(module), function)
    marks = Marks(n)
    finished[place] = on_fast_loop(work(marks, lambda: line.wait(_PATIENCE), **arguments))
    (folder / f"handled-{place}").write_bytes(marks.counts)


def _check(folder: Path, n: int, processes: int) -> list[int]:
    together, shares = Marks(n), []
    for place in range(processes):
        counts = (folder / f"handled-{place}").read_bytes()
        together.counts = bytearray(map(int.__add__, together.counts, counts))
        shares.append(n - counts.count(0))
    together.check(n)
    return shares


def on_fast_loop(main: Coroutine[Any, Any, Any]) -> Any:
    """Run *main* on uvloop, as everybody here does."""
    import uvloop  # noqa: PLC0415 - only cases need it

    return asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main)
