"""The harness itself on PostgreSQL: builds that are broken on purpose must be caught, and sound ones must not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.torture import crowd, kills, zombies
from tests.torture.nursery import Nursery

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgres import Postgres

pytestmark = pytest.mark.torture

CAUGHT_BY_KILLS = {
    "pg_counters_not_kept": "the counters say",
    "pg_settled_before_commit": "break the order of tokens",
    "pg_early_yes": "acknowledged letters are lost",
    "pg_rescue_forgets": "leases outlived a sweep",
}


@pytest.mark.parametrize("mutant", CAUGHT_BY_KILLS)
def test_a_broken_build_is_caught_by_kills(tmp_path: Path, pg: Postgres, mutant: str):
    outcome = kills.at_random(tmp_path, 25, 1, url=pg.url, mutant=mutant, floor=0, patience=3)
    assert any(CAUGHT_BY_KILLS[mutant] in problem for problem in outcome.verdict.problems), outcome.verdict


@pytest.mark.parametrize("mutant", ["", "pg_no_token_check"])
def test_a_build_that_lets_a_late_worker_settle_is_caught(tmp_path: Path, pg: Postgres, mutant: str):
    with Nursery() as nursery:
        verdict = zombies.awake_again(
            nursery, tmp_path, "running", url=pg.url, mutant=mutant, patience=8 if mutant else 90
        )
    caught = any("break the order of tokens" in problem for problem in verdict.problems)
    assert caught if mutant else verdict.ok, verdict


@pytest.mark.parametrize("mutant", ["", "pg_no_skip_locked"])
def test_a_build_that_gives_a_letter_to_two_is_caught(tmp_path: Path, pg: Postgres, mutant: str):
    verdict = crowd.drain(tmp_path, pg.url, processes=4, letters=3_000, mutant=mutant, patience=12 if mutant else 300)
    assert bool(verdict.problems) is bool(mutant), verdict
