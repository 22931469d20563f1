"""
The wall clock of the PostgreSQL server jumps by minutes, both ways, while workers work.

Owns when it jumps and how far. Nobody dies, so nobody may lose a letter; at the end the clock stands later than it
ever did, so that all that waits is due.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.servers import jumping
from tests.torture.checker import Verdict, judge, read_rows
from tests.torture.history import History
from tests.torture.nursery import Nursery
from tests.torture.runs import plug
from tests.torture.runs.kills import WORK

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgres import Postgres

WORKERS = 3
LETTERS = 40  # for each jump and worker: enough that the workers outlast the jumps
FARTHEST = 600.0  # seconds: ten times the lease
LEASE = 60.0
_PATIENCE = 240.0


class Jumped(NamedTuple):
    """What a run came to."""

    verdict: Verdict
    problems: list[str]


def at_random(folder: Path, server: Postgres, cycles: int, seed: int) -> Jumped:
    """Let the clock jump *cycles* times, let everything come to its end, judge."""
    rng = random.Random(seed)
    jumping.prepare(server)
    common = {"folder": str(folder), "url": server.url, "lease": LEASE, "sweep": 0.1, "until_idle": True, "napping": 6}
    with Nursery() as nursery:
        pids = [nursery.start(WORK, **common, produce=LETTERS * cycles, seed=seed + n) for n in range(WORKERS)]
        plug._wait_for_workers(server.url, WORKERS)
        for _ in range(cycles):
            time.sleep(rng.uniform(0.02, 0.2))
            jumping.jump(server, rng.uniform(-FARTHEST, FARTHEST))
        jumping.jump(server, 2 * FARTHEST)
        codes = [nursery.wait(pid, _PATIENCE) for pid in pids]
    verdict = judge(History(folder / "history"), server.url, floor=cycles)
    taken = [row.id for row in read_rows(server.url).values() if row.losses]
    problems = [f"a worker ended with {code}" for code in codes if code]
    problems += [f"{len(taken)} letters were taken from living workers: {taken[:5]}"] if taken else []
    return Jumped(verdict, [*verdict.problems, *problems])
