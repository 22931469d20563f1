"""
Scenes after which records are missing: committed though nobody handled them, or stuck.

Owns the scenes and their handlers, which child processes import. A record is accounted for if a
handler noted it or a dead letter has it.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from benchmarks.kafka_work import LINES, note_line
from benchmarks.scenes_stage import Stage, id_of, scene, value_of
from redrive.errors import SettingsError

FEW = 20
FAILING = frozenset({3, 7, 11})
BATCH = 64
MANY = 200
KILLER = 50
LARGE = 300_000  # bytes


@scene
async def no_dead_letter_topic(stage: Stage) -> dict[str, int]:
    """Three of twenty records fail, their dead-letter topic does not exist, and the broker makes none by itself."""
    stage.create(dead_letters=False)
    stage.produce(range(FEW))
    async with stage.consuming(fails_thrice):
        await stage.until(lambda: stage.committed() == FEW, 20)
    return {"n": FEW, "wrong": sum(i < stage.committed() for i in FAILING)}


@scene
async def no_tries(stage: Stage) -> dict[str, int]:
    """`max_retries=0`: nobody means that nothing shall be handled."""
    stage.create()
    stage.produce(range(FEW))
    try:
        async with stage.consuming(notes, tries=0):
            await stage.until(lambda: stage.committed() == FEW, 8)
    except SettingsError:  # refused at the start
        return {"n": FEW, "wrong": 0}
    return _lost(stage, FEW)


@scene
async def a_time_limit_passes(stage: Stage) -> dict[str, int]:
    """In a worker process the last record takes longer than `task_timeout_ms`, at every try."""
    stage.create()
    stage.produce(range(FEW))
    async with stage.consuming(hangs_at_the_last, engine="process", timeout_ms=500):
        await stage.until(lambda: stage.committed() == FEW, 20)
        return _lost(stage, FEW)


@scene
async def a_worker_dies(stage: Stage) -> dict[str, int]:
    """Of two worker processes one is killed, once, in the middle of its work."""
    return await _stuck(stage, dies_once, MANY)


@scene
async def large_records(stage: Stage) -> dict[str, int]:
    """Records of 300 kB, each of which the broker takes, go to worker processes."""
    return await _stuck(stage, notes_in_process, BATCH, size=LARGE)


@scene
async def a_timeout_error_of_its_own(stage: Stage) -> dict[str, int]:
    """The first record's handler, in a worker process, raises `TimeoutError`: say, of a call to somebody else."""
    return await _stuck(stage, raises_timeout_at_first, BATCH)


async def _stuck(stage: Stage, worker: Any, n: int, size: int = 0) -> dict[str, int]:
    stage.create()
    stage.produce(range(n), size=size)
    async with stage.consuming(worker, engine="process"):
        await stage.until(lambda: stage.committed() == n, 20)
        return {"n": n, "wrong": n - len(stage.accounted())}


def _lost(stage: Stage, n: int) -> dict[str, int]:
    committed, accounted = stage.committed(), stage.accounted()
    return {"n": n, "wrong": sum(i < committed for i in range(n) if i not in accounted)}


# ---------------------------------------------------------------------- handlers


async def notes(given: Any) -> None:
    """Handle it."""
    note_line(value_of(given))


async def fails_thrice(given: Any) -> None:
    """Fail every try of three records."""
    if id_of(given) in FAILING:
        raise ValueError("it never works")
    note_line(value_of(given))


def notes_in_process(given: Any) -> None:
    """Handle it."""
    note_line(value_of(given))


def hangs_at_the_last(given: Any) -> None:
    """Take a minute for the last record."""
    if id_of(given) == FEW - 1:
        time.sleep(60)
    note_line(value_of(given))


def dies_once(given: Any) -> None:
    """Kill the process at one record, the first time."""
    marker = Path(os.environ[LINES]).with_suffix(".killed")
    if id_of(given) == KILLER and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    note_line(value_of(given))


def raises_timeout_at_first(given: Any) -> None:
    """Fail every try of the first record, as a client of another service would."""
    if id_of(given) == 0:
        raise TimeoutError("the other service did not answer")
    note_line(value_of(given))
