"""The harness itself on PostgreSQL: builds that are broken on purpose must be caught, and sound ones must not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.torture.nursery import Nursery
from tests.torture.runs import caught, crowd, kills, zombies

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgres import Postgres
    from tests.torture.checker import Verdict

pytestmark = pytest.mark.torture

CAUGHT_BY_KILLS = {
    "pg_counters_not_kept": "the counters say",
    "pg_settled_before_commit": "break the order of tokens",
    "pg_early_yes": "acknowledged letters are lost",
    "pg_rescue_forgets": "leases outlived a sweep",
}


@pytest.mark.parametrize("mutant", CAUGHT_BY_KILLS)
def test_a_broken_build_is_caught_by_kills(tmp_path: Path, pg: Postgres, mutant: str):
    def round_(folder: Path, patience: float) -> Verdict:
        pg.psql("DROP SCHEMA IF EXISTS redrive CASCADE")
        return kills.at_random(folder, 25, 1, url=pg.url, mutant=mutant, floor=0, patience=patience).verdict

    caught.by(CAUGHT_BY_KILLS[mutant], tmp_path, round_)


def test_a_build_that_lets_a_late_worker_settle_is_caught(tmp_path: Path, pg: Postgres):
    def round_(folder: Path, patience: float) -> Verdict:
        pg.psql("DROP SCHEMA IF EXISTS redrive CASCADE")
        with Nursery() as nursery:
            return zombies.awake_again(
                nursery, folder, "running", url=pg.url, mutant="pg_no_token_check", patience=2 * patience
            )

    caught.by("break the order of tokens", tmp_path, round_)


def test_a_sound_build_lets_no_late_worker_settle(tmp_path: Path, pg: Postgres):
    with Nursery() as nursery:
        verdict = zombies.awake_again(nursery, tmp_path, "running", url=pg.url, patience=90)
    assert verdict.ok, verdict


@pytest.mark.parametrize("mutant", ["", "pg_no_skip_locked"])
def test_a_build_that_gives_a_letter_to_two_is_caught(tmp_path: Path, pg: Postgres, mutant: str):
    verdict = crowd.drain(tmp_path, pg.url, processes=4, letters=3_000, mutant=mutant, patience=12 if mutant else 300)
    assert bool(verdict.problems) is bool(mutant), verdict
