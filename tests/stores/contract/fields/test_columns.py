"""What a worker takes, as rows keep it."""

from __future__ import annotations

import pytest

from redrive.stores.columns import TakenKinds, read_taken, taken_by
from redrive.stores.contract import WorkerBeat


@pytest.mark.parametrize(
    ("column", "taken"),
    [
        (b"[]", TakenKinds(())),
        (b'["a","b"]', TakenKinds(("a", "b"))),
        (b'[["q","a"],["q","b"]]', TakenKinds(("a", "b"), ("q", "q"), ("", ""))),  # of an earlier release
        (b'[["q","a","bank"],["q","b",""]]', TakenKinds(("a", "b"), ("q", "q"), ("bank", ""))),
    ],
)
def test_what_a_worker_of_any_release_takes_can_be_read(column, taken):
    assert read_taken(column) == taken


@pytest.mark.parametrize(
    "taken", [TakenKinds(("a",)), TakenKinds(("a", "b"), ("q", "r"), ("", "bank")), TakenKinds(("a",), ("q",), ("",))]
)
def test_what_is_kept_reads_back_the_same(taken):
    assert read_taken(taken_by(WorkerBeat(name="w", **taken._asdict()))) == taken
