"""A worker that slept past its lease changes nothing when it wakes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.torture.nursery import Nursery
from tests.torture.runs import zombies

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torture

ROUNDS = 4


def test_a_worker_that_slept_past_its_lease_settles_nothing(tmp_path: Path):
    with Nursery() as nursery, ThreadPoolExecutor(5) as pool:
        runs = {
            (moment, seed): pool.submit(zombies.awake_again, nursery, tmp_path / f"{moment}-{seed}", moment, seed=seed)
            for moment in zombies.MOMENTS
            for seed in range(ROUNDS)
        }
    verdicts = {name: run.result() for name, run in runs.items()}
    bad = {name: verdict.problems for name, verdict in verdicts.items() if not verdict.ok}
    assert not bad
    woken = {moment: sum(verdicts[moment, seed].refused for seed in range(ROUNDS)) for moment in zombies.MOMENTS}
    assert all(woken.values()), f"a zombie must have tried to settle, or this proves nothing: {woken}"
