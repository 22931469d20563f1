"""Clocks of workers that are ten minutes off, and a clock of the server that jumps: no lease follows either."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.torture import workload
from tests.torture.checker import judge, read_rows
from tests.torture.history import History
from tests.torture.nursery import Nursery
from tests.torture.runs import jumps

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgres import Postgres

pytestmark = pytest.mark.torture


def work(skew: float, **arguments: Any) -> None:
    """In a process of its own: a worker whose wall clock is *skew* seconds off."""
    wall, wall_ns = time.time, time.time_ns
    time.time = lambda: wall() + skew
    time.time_ns = lambda: wall_ns() + round(skew * 1e9)
    workload.work(**arguments)


def test_clocks_that_are_ten_minutes_off_take_no_letter_from_the_living(tmp_path: Path, pg: Postgres):
    common = {"folder": str(tmp_path), "url": pg.url, "lease": 60.0, "sweep": 0.1, "until_idle": True, "napping": 6}
    end = (
        time.monotonic() + 240
    )  # long before the clocks agree: a delay is a span, and nobody waits for another's clock
    with Nursery() as nursery:
        pids = [
            nursery.start("tests.torture.postgres.test_clock:work", skew=skew, produce=40, seed=n, **common)
            for n, skew in enumerate((600.0, -600.0, 0.0))
        ]
        assert [nursery.wait(pid, end - time.monotonic()) for pid in pids] == [0, 0, 0]
    verdict = judge(History(tmp_path / "history"), pg.url, floor=60)
    assert verdict.ok, verdict
    assert not [row for row in read_rows(pg.url).values() if row.losses], "letters were taken from living workers"
    late = "SELECT count(*) FROM redrive.outbox WHERE abs(extract(epoch FROM updated_at - clock_timestamp())) > 300"
    assert pg.psql(late) == "0"


def test_a_server_whose_clock_jumps_takes_no_letter_from_the_living(tmp_path: Path, pg: Postgres):
    found = jumps.at_random(tmp_path, pg, cycles=12, seed=20_261_117)  # the long form has more
    assert not found.problems
