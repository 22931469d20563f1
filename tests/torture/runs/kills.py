"""
kill -9 of worker processes on one store: a file, or (given a *url*) a PostgreSQL server.

Owns the two forms: at random moments, and at every named failpoint, once, twice in a row
and during the rescue of what an earlier death left behind.
"""

from __future__ import annotations

import math
import random
import re
import signal
import time
from pathlib import Path

from tests.torture import checker, looks
from tests.torture.checker import Verdict, judge
from tests.torture.history import History
from tests.torture.nursery import ROOT, Nursery
from tests.torture.sampler import Outcome, Sampler
from tests.torture.workload import wait_for

WORKERS = 4
LEASE, SWEEP = 0.6, 0.1
WORK = "tests.torture.workload:work"
# Workers neither act nor add to counters: tests/sources/workflow/test_counting_kills.py kills the queue that does.
COUNTING = {"act.after", "act.before_count", "put.before_count"}


def place_of(folder: Path, url: str = "") -> str | Path:
    """Return where the letters are: the file of *folder*, unless there is a *url*."""
    return url or folder / looks.NAME


def at_random(
    folder: Path,
    cycles: int,
    seed: int,
    *,
    url: str = "",
    mutant: str = "",
    floor: int | None = None,
    patience: float = 30,
    looking: bool = False,
) -> Outcome:
    """
    Kill one of four workers every 20 to 100 ms, *cycles* times, then let the rest come to rest and judge.

    With *looking* each of them also looks at the file with another SQLite library.
    """
    rng, points = random.Random(seed), named_points(url)
    with Nursery() as nursery:

        def start(slot: int) -> int:
            # Every third worker also carries a failpoint, so that narrow windows are met in bad company.
            armed = f"{rng.choice(points)}=kill@{rng.randrange(1, 12)}" if rng.random() < 1 / 3 else ""
            return nursery.start(
                WORK, folder=str(folder), url=url, seed=rng.randrange(1 << 30), armed=armed, produce=40, mutant=mutant,
                lease=LEASE, sweep=SWEEP, looking=looking,
            )  # fmt: skip

        pids = [start(slot) for slot in range(WORKERS)]
        with Sampler(place_of(folder, url)) as sampler:
            for _ in range(cycles):
                time.sleep(rng.uniform(0.02, 0.1))
                slot = rng.randrange(WORKERS)
                nursery.kill(pids[slot])
                pids[slot] = start(slot)
            for pid in pids:
                nursery.kill(pid)
            come_to_rest(nursery, folder, url=url, mutant=mutant, seconds=patience)
    return sampler.outcome(folder, cycles=cycles, floor=cycles if floor is None else floor)


def in_peace(folder: Path, *, mutant: str = "", looking: bool = False) -> Verdict:
    """Let two workers do slow letters and harm nobody: then no letter may have been lost by a worker."""
    settings = {"folder": str(folder), "lease": 10.0, "sweep": SWEEP, "mutant": mutant, "until_idle": True}
    settings |= {"looking": looking}
    with Nursery() as nursery:
        pids = [nursery.start(WORK, **settings, produce=30, napping=12, seed=seed) for seed in range(2)]
        wait_for(lambda: all(nursery.code(pid) is not None for pid in pids), 15 if mutant else 60)
        for pid in pids:
            if nursery.code(pid) is None:
                nursery.kill(pid)
    verdict = judge(History(folder / "history"), folder / "redrive.db", floor=24)
    rows = checker.read_rows(folder / "redrive.db").values()
    verdict.blame("letters were taken from living workers", [row.id for row in rows if row.losses])
    return verdict


def come_to_rest(
    nursery: Nursery,
    folder: Path,
    *,
    url: str = "",
    mutant: str = "",
    workers: int = 2,
    produce: int = 0,
    seconds: float = 30,
) -> None:
    """No more faults: let workers finish; give up when nothing has for *seconds*, which the judge sees as stuck."""
    settings = {"until_idle": True, "url": url, "produce": produce, "mutant": mutant, "lease": LEASE, "sweep": SWEEP}
    pids = [nursery.start(WORK, folder=str(folder), **settings) for _ in range(workers)]
    left, end = _unfinished(place_of(folder, url)), time.monotonic() + seconds
    while not all(nursery.code(pid) is not None for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
        now = _unfinished(place_of(folder, url))
        if now < left:  # it goes on
            left, end = now, time.monotonic() + seconds
    for pid in pids:
        if nursery.code(pid) is None:
            nursery.kill(pid)


def _unfinished(place: str | Path) -> float:
    with looks.at(place) as look:
        try:
            return look.unfinished()
        except looks.Away:  # on a busy machine every worker may have died before it made the tables
            return math.inf


# ---------------------------------------------------------------------- failpoints


def named_points(url: str = "") -> list[str]:
    """Return every failpoint in the source that a worker passes on this store."""
    rooms = (
        ROOT / "src" / "redrive" / "engine",
        ROOT / "src" / "redrive" / "stores" / ("postgres" if url else "sqlite"),
    )
    # Workers copy no letters: tests/cli/act/test_copying.py kills the command that does.
    sources = [path for room in rooms for path in room.rglob("*.py") if path.name != "copying.py"]
    found = {name for path in sources for name in re.findall(r'\bhit\("([^"]+)"\)', path.read_text())}
    return sorted(found - COUNTING)


def at_point(nursery: Nursery, folder: Path, point: str, *, times: int, nth: int, url: str = "") -> Verdict:
    """Leave letters behind, kill *times* workers at *point*, let others come to rest, judge."""
    common = {"folder": str(folder), "url": url, "lease": LEASE, "sweep": SWEEP}
    codes = []
    with Sampler(place_of(folder, url), every=0.1) as sampler:
        for turn in range(times):
            _leave_behind(nursery, place_of(folder, url), common, seed=turn)
            armed = f"{point}=kill@{nth}"
            pid = nursery.start(WORK, **common, seed=100 + turn, produce=60, armed=armed, until_idle=True)
            codes.append(nursery.wait(pid, 60))
        come_to_rest(nursery, folder, url=url, workers=1, produce=30)
    expected = {-signal.SIGKILL} if nth == 1 else {-signal.SIGKILL, 0}  # not every worker passes thrice
    odd = [] if set(codes) <= expected else [f"workers armed at {point} ended with {codes}"]
    return sampler.outcome(folder, cycles=times, floor=10, problems=odd).verdict


def _leave_behind(nursery: Nursery, place: str | Path, common: dict[str, object], seed: int) -> None:
    """Let a worker die with letters in flight, so that there is something to rescue."""
    first = nursery.start(WORK, **common, seed=seed, produce=30, hanging=6)
    if not wait_for(lambda: hanging(place) > 0, 20):
        message = f"the letters in {place} do not hang"
        raise TimeoutError(message)
    nursery.kill(first)


def hanging(place: str | Path) -> int:
    """Count letters that hang; those that have lost a worker no longer do."""
    if isinstance(place, Path) and not place.exists():
        return 0
    with looks.at(place) as look:
        try:
            return look.hanging()
        except looks.Away:
            return 0
