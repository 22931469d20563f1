"""
Many processes that drain one PostgreSQL store.

Owns the drain, with and without order, and what must hold of it when nobody is killed: every letter
runs once, of a key one at a time and in order.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from tests.torture import workload
from tests.torture.checker import Verdict, judge
from tests.torture.history import History
from tests.torture.nursery import Nursery
from tests.torture.runs import mutants
from tests.torture.workload import wait_for

from redrive.core.letter import Letter  # noqa: TC001 - handlers' annotations are read at run time

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.history import Log

    from redrive.app import Redrive

_BATCH = 1_000


def drain(
    folder: Path, url: str, *, processes: int, letters: int, keys: int = 0, mutant: str = "", patience: float = 600
) -> Verdict:
    """Put *letters*, of so many *keys* if the queue is ordered, drain them with so many *processes*, judge."""
    common = {"folder": str(folder), "url": url, "ordered": keys > 0, "mutant": mutant}
    with Nursery() as nursery:
        putting = nursery.start("tests.torture.runs.crowd:put", **common, letters=letters, keys=keys)
        assert nursery.wait(putting, 600) == 0
        pids = [nursery.start("tests.torture.runs.crowd:work", **common) for _ in range(processes)]
        wait_for(lambda: all(nursery.code(pid) is not None for pid in pids), patience, 0.1)
        codes = [nursery.code(pid) for pid in pids]
        for pid, code in zip(pids, codes, strict=True):
            if code is None:
                nursery.kill(pid)
    history = History(folder / "history")
    verdict = judge(history, url, floor=letters)
    if any(codes):
        verdict.problems.append(f"the workers ended with {codes}")
    twice = [letter for letter, starts in history.starts.items() if len(starts) > 1]
    verdict.blame("letters ran more than once", twice)
    verdict.problems += _order_problems(folder) if keys else []
    return verdict


def _order_problems(folder: Path) -> list[str]:
    """Read when each letter of a key began and ended: never two at a time, and in the order they were put."""
    runs: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for path in (folder / "runs").glob("*.log"):
        for line in path.read_text().splitlines():
            key, place, began, ended = line.split()
            runs[key].append((float(began), float(ended), int(place)))
    problems = []
    for key, each in runs.items():
        each.sort()
        if [place for *_, place in each] != sorted(place for *_, place in each):
            problems.append(f"key {key} ran out of order")
        if any(first[1] > second[0] for first, second in itertools.pairwise(each)):
            problems.append(f"two letters of key {key} ran at a time")
    return problems[:5]


def _app(folder: str, url: str, *, ordered: bool) -> tuple[Redrive, Log]:
    app, log = workload.build(folder, url=url, lease=30, sweep=1)
    if ordered:
        app.queue("lanes", ordered=True)
    return app, log


def put(folder: str, url: str, *, ordered: bool, mutant: str, letters: int, keys: int) -> None:
    """In a process of its own: put the letters, the keys in turn."""
    mutants.apply(mutant)
    workload.quiet()
    asyncio.run(_put(folder, url, ordered=ordered, letters=letters, keys=keys))


async def _put(folder: str, url: str, *, ordered: bool, letters: int, keys: int) -> None:
    app, _ = _app(folder, url, ordered=ordered)
    await app.open()
    for start in range(0, letters, _BATCH):
        places = range(start, min(start + _BATCH, letters))
        if keys:
            await app.enqueue_many(
                [app.draft("keyed", {"n": n}, key=f"k{n % keys}", queue="lanes", metadata={"n": n}) for n in places]
            )
        else:
            await app.enqueue_many([app.draft("ok", {"n": n}) for n in places])
    await app.close()


def work(folder: str, url: str, *, ordered: bool, mutant: str) -> None:
    """In a process of its own: drain."""
    mutants.apply(mutant)
    workload.quiet()
    asyncio.run(_work(folder, url, ordered=ordered))


async def _work(folder: str, url: str, *, ordered: bool) -> None:
    from pathlib import Path  # noqa: PLC0415 - beside the annotations

    app, log = _app(folder, url, ordered=ordered)
    runs = type(log)(Path(folder) / "runs")

    async def keyed(letter: Letter) -> None:
        began = time.clock_gettime(time.CLOCK_MONOTONIC)
        log.write(("run_start", letter.id, letter.token))
        await asyncio.sleep(0)
        log.write(("effect", letter.id))
        runs.write((letter.key, letter.metadata["n"], began, time.clock_gettime(time.CLOCK_MONOTONIC)))

    app.add_handler("keyed", keyed, queue="lanes" if ordered else "default")
    await app.run(until_idle=True)
    await app.close()
