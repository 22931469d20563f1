"""kill -9 on one file: nothing lost, nothing stuck past lease and sweep, no stale settlement, books balanced."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.torture.nursery import Nursery
from tests.torture.runs import kills

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torture

CYCLES, SEED = 300, 20_260_101
STYLES = [(1, 1), (1, 3), (2, 1)]  # how many deaths in a row, and at which pass


def test_kill_9_of_four_workers_on_one_file_loses_nothing(tmp_path: Path):
    outcome = kills.at_random(tmp_path, CYCLES, SEED)
    print(outcome)
    assert outcome.verdict.ok, (
        f"replay: pytest -m torture tests/torture/sqlite/test_kills.py -k four (seed {SEED})\n"
        f"{outcome.verdict.problems}"
    )
    assert outcome.samples > 10
    assert outcome.rescued > 0


@pytest.mark.parametrize(("times", "nth"), STYLES)
def test_a_death_at_any_named_point_loses_nothing(tmp_path: Path, times: int, nth: int):
    points = kills.named_points()
    assert len(points) > 20
    with Nursery() as nursery, ThreadPoolExecutor(6) as pool:
        runs = {
            point: pool.submit(kills.at_point, nursery, tmp_path / point, point, times=times, nth=nth)
            for point in points
        }
    verdicts = {point: run.result() for point, run in runs.items()}
    bad = {point: verdict.problems for point, verdict in verdicts.items() if not verdict.ok}
    assert not bad, f"replay: pytest -m torture tests/torture/sqlite/test_kills.py -k '{times}-{nth}'\n{bad}"
