"""
Scenes in which a few records fail: what becomes of the healthy ones beside them, and of their dead letters.

Owns the scenes and their handlers, which child processes import.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.kafka_work import LINES, note_line
from benchmarks.scenes_stage import Stage, id_of, scene, value_of

BAD = 20
HEALTHY = 500
SLOTS = 10
BESIDE = 80  # of other keys
IN_PROCESS = 50
FAR = 20_000  # ms until the next try
SOON = 10.0  # seconds in which healthy records should have been handled
LARGE = 100_000  # bytes
LETTERS = 50
CACHE = 1_000_000  # bytes


@scene
async def no_way_to_publish(stage: Stage) -> dict[str, int]:
    """Twenty dead letters cannot be published; then 500 healthy records arrive."""
    tries: list[int] = []

    async def worker(given: Any) -> None:
        if id_of(given) < BAD:
            tries.append(id_of(given))
            raise ValueError("it never works")
        note_line(value_of(given))

    stage.create(dead_letters=False)
    stage.produce(range(BAD))
    async with stage.consuming(worker):
        assert await stage.until(lambda: len(tries) >= 3 * BAD, 20)
        stage.produce(range(BAD, BAD + HEALTHY))
        await stage.until(lambda: len(stage.noted()) == HEALTHY, SOON)
        return {"n": HEALTHY, "wrong": HEALTHY - len(set(stage.noted()))}


@scene
async def retries_in_all_slots(stage: Stage) -> dict[str, int]:
    """As many records as may run at once have failed and wait for their next try; 80 healthy ones are behind them."""
    tries: list[int] = []

    async def worker(given: Any) -> None:
        if id_of(given) < SLOTS:
            tries.append(id_of(given))
            raise ValueError("not now")
        note_line(value_of(given))

    stage.create()
    stage.produce(range(SLOTS + BESIDE))
    async with stage.consuming(worker, at_once=SLOTS, backoff_ms=FAR):
        assert await stage.until(lambda: len(tries) >= SLOTS, 20)
        await stage.until(lambda: len(stage.noted()) == BESIDE, SOON)
        return {"n": BESIDE, "wrong": BESIDE - len(set(stage.noted()))}


@scene
async def a_retry_in_a_process(stage: Stage) -> dict[str, int]:
    """The first record fails in the only worker process; 49 healthy ones are behind it."""
    stage.create()
    stage.produce(range(IN_PROCESS))
    marker = stage.folder / "failed.txt"
    async with stage.consuming(fails_at_first, engine="process", processes=1, backoff_ms=FAR):
        assert await stage.until(marker.exists, 20)
        await stage.until(lambda: len(stage.noted()) == IN_PROCESS - 1, SOON)
        return {"n": IN_PROCESS - 1, "wrong": IN_PROCESS - 1 - len(set(stage.noted()))}


@scene
async def a_small_cache(stage: Stage) -> dict[str, int]:
    """Fifty records of 100 kB fail; `message_cache_max_bytes` has room for ten; how many dead letters lack a value?"""
    stage.create()
    stage.produce(range(LETTERS), size=LARGE)
    async with stage.consuming(_fails, cache_bytes=CACHE):
        await stage.until(lambda: stage.committed() == LETTERS, 30)
    return {"n": LETTERS, "wrong": LETTERS - len(stage.accounted())}


@scene
async def no_other_try_helps(stage: Stage) -> dict[str, int]:
    """Twenty records raise an error that no other try heals, and redrive is told so; how many more tries?"""
    tries: list[int] = []

    async def worker(given: Any) -> None:
        tries.append(id_of(given))
        raise KeyError("there is no such order")

    stage.create()
    stage.produce(range(BAD))
    async with stage.consuming(worker, hopeless=(KeyError,)):
        assert await stage.until(lambda: stage.committed() == BAD, 20)
    return {"n": BAD, "wrong": len(tries) - BAD}


async def _fails(_given: Any) -> None:
    raise ValueError("it never works")


def fails_at_first(given: Any) -> None:
    """Fail every try of the first record, and leave a mark."""
    if id_of(given) == 0:
        Path(os.environ[LINES]).with_name("failed.txt").touch()
        raise ValueError("not now")
    note_line(value_of(given))
