"""
kill -9 of worker processes on one file.

Owns the two forms: at random moments, and at every named failpoint, once, twice in a row
and during the rescue of what an earlier death left behind.
"""

from __future__ import annotations

import random
import re
import signal
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Self

import apsw
import msgspec
from tests.torture import checker
from tests.torture.checker import Verdict, judge
from tests.torture.history import History
from tests.torture.nursery import ROOT, Nursery
from tests.torture.workload import wait_for

if TYPE_CHECKING:
    from pathlib import Path

WORKERS = 4
LEASE, SWEEP = 0.6, 0.1
WORK = "tests.torture.workload:work"
_LEASE_MASK = (1 << 43) - 1


class Outcome(msgspec.Struct, kw_only=True):
    """A run's verdict and its figures."""

    verdict: Verdict
    cycles: int
    samples: int
    worst_overdue_ms: int  # the longest that a lease had ended before its letter was taken back
    seconds: float


class Sampler:
    """Looks at the books all the time, each time in one snapshot."""

    def __init__(self, path: Path) -> None:
        self._path, self._over = path, threading.Event()
        self.samples, self.worst, self.problems = 0, 0, []
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        wait_for(self._path.exists, 10)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        with closing(checker._open(self._path)) as connection:
            while not self._over.wait(0.04):
                try:
                    found = checker.sample(connection)
                    lease = connection.execute("SELECT min(lease) FROM letters WHERE status = 'in_flight'").get
                except apsw.SQLError:  # the schema is not there yet
                    continue
                self.samples += 1
                self.problems += [f"sample {self.samples}: {problem}" for problem in found]
                if lease is not None:
                    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
                    self.worst = max(self.worst, now - (lease & _LEASE_MASK))


def at_random(
    folder: Path, cycles: int, seed: int, *, mutant: str = "", floor: int | None = None, patience: float = 30
) -> Outcome:
    """Kill one of four workers every 20 to 100 ms, *cycles* times, then let the rest come to rest and judge."""
    began, rng = time.monotonic(), random.Random(seed)
    points = named_points()
    with Nursery() as nursery:

        def start(slot: int) -> int:
            # Every third worker also carries a failpoint, so that narrow windows are met in bad company.
            armed = f"{rng.choice(points)}=kill@{rng.randrange(1, 12)}" if rng.random() < 1 / 3 else ""
            return nursery.start(
                WORK, folder=str(folder), seed=rng.randrange(1 << 30), armed=armed, produce=40, mutant=mutant,
                lease=LEASE, sweep=SWEEP,
            )  # fmt: skip

        pids = [start(slot) for slot in range(WORKERS)]
        with Sampler(folder / "redrive.db") as sampler:
            for _ in range(cycles):
                time.sleep(rng.uniform(0.02, 0.1))
                slot = rng.randrange(WORKERS)
                nursery.kill(pids[slot])
                pids[slot] = start(slot)
            for pid in pids:
                nursery.kill(pid)
            come_to_rest(nursery, folder, mutant=mutant, seconds=patience)
    verdict = judge(History(folder / "history"), folder / "redrive.db", floor=cycles if floor is None else floor)
    verdict.samples = sampler.samples
    verdict.problems += sampler.problems[:5]
    return Outcome(
        verdict=verdict,
        cycles=cycles,
        samples=sampler.samples,
        worst_overdue_ms=sampler.worst,
        seconds=time.monotonic() - began,
    )


def in_peace(folder: Path, *, mutant: str = "") -> Verdict:
    """Let two workers do slow letters and harm nobody: then no letter may have been lost by a worker."""
    settings = {"folder": str(folder), "lease": 10.0, "sweep": SWEEP, "mutant": mutant, "until_idle": True}
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
    nursery: Nursery, folder: Path, *, mutant: str = "", workers: int = 2, produce: int = 0, seconds: float = 30
) -> None:
    """No more faults: let workers finish; give up when nothing has for *seconds*, which the judge sees as stuck."""
    settings = {"until_idle": True, "produce": produce, "mutant": mutant, "lease": LEASE, "sweep": SWEEP}
    pids = [nursery.start(WORK, folder=str(folder), **settings) for _ in range(workers)]
    left, end = _unfinished(folder), time.monotonic() + seconds
    while not all(nursery.code(pid) is not None for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
        now = _unfinished(folder)
        if now < left:  # it goes on
            left, end = now, time.monotonic() + seconds
    for pid in pids:
        if nursery.code(pid) is None:
            nursery.kill(pid)


def _unfinished(folder: Path) -> int:
    with closing(checker._open(folder / "redrive.db")) as connection:
        return connection.execute("SELECT count(*) FROM letters WHERE status IN ('pending', 'in_flight')").get


# ---------------------------------------------------------------------- failpoints


def named_points() -> list[str]:
    """Return every failpoint in the source that a SQLite worker passes."""
    rooms = (ROOT / "src" / "redrive" / "engine", ROOT / "src" / "redrive" / "stores" / "sqlite")
    sources = [path for room in rooms for path in room.rglob("*.py")]
    return sorted({name for path in sources for name in re.findall(r'\bhit\("([^"]+)"\)', path.read_text())})


def at_point(nursery: Nursery, folder: Path, point: str, *, times: int, nth: int) -> Verdict:
    """Leave letters behind, kill *times* workers at *point*, let others come to rest, judge."""
    common = {"folder": str(folder), "lease": LEASE, "sweep": SWEEP}
    codes = []
    for turn in range(times):
        _leave_behind(nursery, folder, common, seed=turn)
        pid = nursery.start(WORK, **common, seed=100 + turn, produce=60, armed=f"{point}=kill@{nth}", until_idle=True)
        codes.append(nursery.wait(pid, 60))
    come_to_rest(nursery, folder, workers=1, produce=30)
    verdict = judge(History(folder / "history"), folder / "redrive.db", floor=10)
    expected = {-signal.SIGKILL} if nth == 1 else {-signal.SIGKILL, 0}  # not every worker passes thrice
    if not set(codes) <= expected:
        verdict.problems.append(f"workers armed at {point} ended with {codes}")
    return verdict


def _leave_behind(nursery: Nursery, folder: Path, common: dict[str, object], seed: int) -> None:
    """Let a worker die with letters in flight, so that there is something to rescue."""
    first = nursery.start(WORK, **common, seed=seed, produce=30, hanging=6)
    wait_for((folder / "redrive.db").exists, 20)
    if not wait_for(lambda: _hanging(folder) > 0, 20):
        message = f"the letters in {folder} do not hang"
        raise TimeoutError(message)
    nursery.kill(first)


def _hanging(folder: Path) -> int:
    """Count letters that hang; those that have lost a worker no longer do."""
    with closing(checker._open(folder / "redrive.db")) as connection:
        try:
            sql = "SELECT count(*) FROM letters WHERE kind = 'hang' AND status = 'in_flight' AND losses = 0"
            return connection.execute(sql).get
        except apsw.SQLError:  # the schema is not there yet
            return 0
