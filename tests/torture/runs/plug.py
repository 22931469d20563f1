"""
kill -9 of the PostgreSQL server while workers work and others put letters, and connections that it ends.

Owns when its plug is pulled, and that it is started again on the same files. Workers are
left alone: they must find back by themselves.
"""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING

from tests.torture import looks
from tests.torture.nursery import Nursery
from tests.torture.runs.kills import LEASE, SWEEP, WORK, come_to_rest
from tests.torture.sampler import Outcome, Sampler
from tests.torture.workload import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgres import Postgres

WORKERS = 3
_LEAST = 20  # times that connections are ended
_PATIENCE = 180.0  # seconds until workers must have begun, or ended
_THROW_OUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


def at_random(folder: Path, server: Postgres, cycles: int, seed: int, *, rescue: bool = False) -> Outcome:
    """
    Kill the server *cycles* times, let the rest come to rest, judge.

    With *rescue* a worker is killed just before, so that the server dies while others rescue its letters.
    """
    rng = random.Random(seed)
    common = {"folder": str(folder), "url": server.url, "lease": LEASE, "sweep": SWEEP}
    with Nursery() as nursery:

        def start() -> int:
            return nursery.start(WORK, **common, produce=1_000_000, napping=3, seed=rng.randrange(1 << 30))

        pids = [start() for _ in range(WORKERS)]
        problems = []
        with Sampler(server.url) as sampler:
            _wait_for_workers(server.url, WORKERS)
            for cycle in range(cycles):
                time.sleep(rng.uniform(0.05, 0.4))
                if rescue:
                    nursery.kill(pids.pop(0))
                    time.sleep(LEASE + rng.uniform(0, 2 * SWEEP))
                server.kill()
                time.sleep(rng.choice((0, 0, 0.2)))
                server.restart()
                if (
                    cycle % 3 == 0
                ):  # every third time somebody has looked before the next kill, however slow the machine
                    _wait_for_a_look(sampler)
                if rescue:
                    pids.append(start())
                    _wait_for_workers(server.url, WORKERS + cycle + 1)  # one that never began may end at once
            problems += _stop(nursery, pids)
            come_to_rest(nursery, folder, url=server.url)
    return sampler.outcome(folder, cycles=cycles, floor=cycles, problems=problems)


def throw_out(folder: Path, server: Postgres, *, seconds: float, seed: int, every: float = 0.2) -> Outcome:
    """End all connections but our own *every* so many seconds, for so many *seconds*; let it come to rest, judge."""
    rng = random.Random(seed)
    common = {"folder": str(folder), "url": server.url, "lease": LEASE, "sweep": SWEEP}
    cycles = 0
    with Nursery() as nursery, Sampler(server.url) as sampler:
        pids = [nursery.start(WORK, **common, produce=1_000_000, seed=rng.randrange(1 << 30)) for _ in range(WORKERS)]
        _wait_for_workers(server.url, WORKERS)
        end = time.monotonic() + seconds
        while time.monotonic() < end or cycles <= _LEAST:  # on a slow machine it takes longer
            server.psql(_THROW_OUT)
            cycles += 1
            time.sleep(every)
        problems = _stop(nursery, pids)
        come_to_rest(nursery, folder, url=server.url)
    return sampler.outcome(folder, cycles=cycles, floor=cycles // 5, problems=problems)


def _wait_for_workers(url: str, count: int) -> None:
    with looks.at(url) as look:

        def there() -> bool:
            try:
                return look.workers() >= count
            except looks.Away:
                return False

        if not wait_for(there, _PATIENCE):
            message = f"{count} workers have not begun"
            raise TimeoutError(message)


def _wait_for_a_look(sampler: Sampler) -> None:
    before = sampler.samples
    if not wait_for(lambda: sampler.samples > before, _PATIENCE):
        message = "the server is up, and cannot be looked at"
        raise TimeoutError(message)


def _stop(nursery: Nursery, pids: list[int]) -> list[str]:
    """Ask the workers to end; a worker that died because its server did is a finding."""
    dead = [f"a worker ended with {nursery.code(pid)}" for pid in pids if nursery.code(pid) is not None]
    for pid in pids:
        if nursery.code(pid) is None:
            nursery.signal(pid, signal.SIGTERM)
    wait_for(lambda: all(nursery.code(pid) is not None for pid in pids), _PATIENCE)
    for pid in pids:
        if nursery.code(pid) is None:
            dead.append("a worker did not end when it was asked to")
            nursery.kill(pid)
    return dead
