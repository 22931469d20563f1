"""The rule that nothing stays past lease and sweep, on histories written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.torture.looks import Lease
from tests.torture.runs import sweeps

if TYPE_CHECKING:
    from pathlib import Path

LEASE = Lease("letter", 7, 1_000)


def _judge(folder: Path, lines: list[str], seen: int = 0, *more: list[str]) -> list[str]:
    for number, part in enumerate((lines, *more)):
        (folder / f"{number}.log").write_text("".join(f"{line}\n" for line in part))
    return sweeps.judge({LEASE: seen} if seen else {}, folder)[0]


def test_a_lease_seen_after_a_whole_sweep_has_outlived_it(tmp_path: Path):
    [problem] = _judge(tmp_path, ["ready 900 0", "began 1001 0", "swept 1050 0"], 1_051)
    assert problem == "1 leases outlived a sweep: letter@7 by 1 ms"


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        (["ready 900 0", "began 1000 0", "swept 1050 0"], 2_000),  # it had not ended when the sweep began
        (["ready 900 0", "began 1001 0", "swept 1050 0"], 1_050),  # the sweep had not ended when it was seen
        (["ready 900 0", "began 1001 0"], 9_000),  # the sweeper was killed
        (["ready 900 0", "began 1001 0", "broken 1050 0"], 9_000),  # the store refused
        (["ready 900 0"], 9_000),  # nobody swept, because nobody lived for an interval
    ],
)
def test_no_lease_outlives_a_sweep_that_could_not_see_it_or_did_not_end(tmp_path: Path, lines: list[str], seen: int):
    assert _judge(tmp_path, lines, seen) == []


def test_one_sweep_of_many_is_enough_to_convict(tmp_path: Path):
    other = ["ready 1 0", "began 1100 0", "swept 1200 0"]
    assert _judge(tmp_path, ["ready 1 0", "began 1150 0", "swept 5000 0"], 1_201, other)
    assert not _judge(tmp_path, ["ready 1 0", "began 1150 0", "swept 5000 0"], 1_200, other)


@pytest.mark.parametrize("before", [["ready 1 0"], ["ready 1 0", "began 2 0", "swept 3 0"]])
def test_a_worker_that_runs_and_does_not_sweep_is_caught(tmp_path: Path, before: list[str]):
    assert _judge(tmp_path, before + ["pulse 4 0"] * 3 + ["began 5 0", "swept 6 0"]) == []
    assert "did not sweep for 4 intervals" in _judge(tmp_path, before + ["pulse 4 0"] * 4)[0]


def test_a_sweep_that_others_overtake_without_end_is_caught(tmp_path: Path):
    assert "did not end" in _judge(tmp_path, ["ready 1 0", "began 2 0"] + ["pulse 3 1"] * 201)[0]


def test_a_sweep_may_take_its_time_while_the_store_answers_nobody(tmp_path: Path):
    assert _judge(tmp_path, ["ready 1 0", "began 2 0"] + ["pulse 3 0"] * 500 + ["swept 4 0"]) == []


def test_time_counts_against_a_lease_only_while_a_worker_runs(tmp_path: Path):
    for number, (begin, end) in enumerate([(500, 1_200), (1_100, 1_300), (1_900, 9_000)]):
        (tmp_path / f"{number}.log").write_text(f"ready {begin} 0\npulse {end} 0\n")
    _, figures = sweeps.judge({LEASE: 2_000}, tmp_path)
    assert (figures.overdue_ms, figures.able_ms) == (1_000, 400)
