"""kill -9 of workers and of the PostgreSQL server: nothing lost, nothing stuck, no stale settlement, books balanced."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.torture.nursery import Nursery
from tests.torture.runs import kills, plug

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgres import Postgres

pytestmark = pytest.mark.torture

SEED = 20_260_301


def test_kill_9_of_four_workers_on_one_server_loses_nothing(tmp_path: Path, pg: Postgres):
    outcome = kills.at_random(tmp_path, 100, SEED, url=pg.url)
    print(outcome)
    assert outcome.verdict.ok, outcome.verdict.problems
    assert outcome.samples > 10
    assert outcome.rescued > 0


@pytest.mark.parametrize(("cycles", "rescue"), [(24, False), (6, True)], ids=["at work", "during rescue"])
def test_kill_9_of_the_server_loses_nothing(tmp_path: Path, pg: Postgres, cycles: int, *, rescue: bool):
    outcome = plug.at_random(tmp_path, pg, cycles, SEED, rescue=rescue)
    print(outcome)
    assert outcome.verdict.ok, outcome.verdict.problems
    assert outcome.samples >= cycles / 3


def test_a_server_that_throws_everybody_out_five_times_a_second_loses_nothing(tmp_path: Path, pg: Postgres):
    outcome = plug.throw_out(tmp_path, pg, seconds=10, seed=SEED)
    print(outcome)
    assert outcome.verdict.ok, outcome.verdict.problems
    assert outcome.cycles > 5


def test_a_death_at_any_named_point_loses_nothing_on_postgresql(tmp_path: Path, pg: Postgres):
    points = kills.named_points(pg.url)
    assert len(points) > 15
    with Nursery() as nursery, ThreadPoolExecutor(3) as pool:
        runs = {
            point: pool.submit(
                kills.at_point, nursery, tmp_path / point, point, times=1, nth=1, url=_database(pg, number)
            )
            for number, point in enumerate(points)
        }
    bad = {point: run.result().problems for point, run in runs.items() if not run.result().ok}
    assert not bad


def _database(pg: Postgres, number: int) -> str:
    """Make a database of its own for one run: runs share the server, not the letters."""
    pg.psql(f"CREATE DATABASE run_{number}")
    return pg.url.removesuffix("/postgres") + f"/run_{number}"
