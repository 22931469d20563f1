"""The harness itself: builds that are broken on purpose must be caught, each by the rule that is meant for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.torture.nursery import Nursery
from tests.torture.runs import caught, kills, zombies
from tests.torture.runs.mutants import MUTANTS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.checker import Verdict

pytestmark = pytest.mark.torture

CAUGHT_BY_KILLS = {
    "forgotten_settlements": "break the order of tokens",
    "counters_not_kept": "the counters say",
    "early_yes": "acknowledged letters are lost",
    "no_rescue": "leases outlived a sweep",
    "rescue_forgets": "leases outlived a sweep",
    "no_sweep": "did not sweep for",
    "endless_sweep": "letters are stuck",
    "dropped_outcomes": "break the order of tokens",
    "delivered_unrun": "delivered and never ran",
}
CAUGHT_BY_ZOMBIES = {"no_token_check": "break the order of tokens", "rescue_by_time": "break the order of tokens"}
CAUGHT_BY_POWER_CUTS = {"no_sync"}  # in test_powercut
CAUGHT_IN_PEACE = {"rescue_of_the_living"}
CAUGHT_ON_POSTGRESQL = {  # in postgres/test_mutants
    "pg_no_token_check", "pg_no_skip_locked", "pg_counters_not_kept", "pg_settled_before_commit", "pg_early_yes",
    "pg_rescue_forgets",
}  # fmt: skip


@pytest.mark.parametrize("mutant", CAUGHT_BY_KILLS)
def test_a_broken_build_is_caught_by_kills(tmp_path: Path, mutant: str):
    def round_(folder: Path, patience: float) -> Verdict:
        return kills.at_random(folder, 25, 1, mutant=mutant, floor=0, patience=patience).verdict

    caught.by(CAUGHT_BY_KILLS[mutant], tmp_path, round_)


@pytest.mark.parametrize("mutant", CAUGHT_BY_ZOMBIES)
def test_a_broken_build_is_caught_by_zombies(tmp_path: Path, mutant: str):
    def round_(folder: Path, patience: float) -> Verdict:
        with Nursery() as nursery:
            return zombies.awake_again(nursery, folder, "running", mutant=mutant, patience=patience)

    caught.by(CAUGHT_BY_ZOMBIES[mutant], tmp_path, round_)


def test_a_build_that_takes_letters_from_living_workers_is_caught(tmp_path: Path):
    def round_(folder: Path, _patience: float) -> Verdict:
        return kills.in_peace(folder, mutant="rescue_of_the_living")

    caught.by("taken from living workers", tmp_path, round_)


def test_nobody_takes_letters_from_living_workers(tmp_path: Path):
    verdict = kills.in_peace(tmp_path)
    assert verdict.ok, verdict


def test_every_mutant_has_its_test():
    caught = [CAUGHT_BY_KILLS, CAUGHT_BY_ZOMBIES, CAUGHT_BY_POWER_CUTS, CAUGHT_IN_PEACE, CAUGHT_ON_POSTGRESQL]
    assert set(MUTANTS) == {name for names in caught for name in names}
