"""Letters that a store moves together: `likeness` tells apart everything that a move makes different."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.core import changes
from redrive.core.letter import Category, Failure, Letter, Status
from redrive.core.moves import Move

NOW = 1_800_000_000_000_000
FAILURE = Failure(error_type="OSError", message="no route", category=Category.TRANSIENT, rule="r", fingerprint="f")
LETTER = Letter(id="a", queue="mail", kind="order", payload=b"", attempts=1)
OTHER_LETTERS = {
    "queue": "bills", "kind": "paid", "attempts": 2, "losses": 1, "first_failed_us": 7, "release": "1.2",
    "applied_policy": "constant:delay=1",
}  # fmt: skip
OTHER_MOVES = {
    "to": Status.FAILED, "why": "exhausted", "counts": False, "loss": True, "policy": "constant:delay=2",
    "failure": replace(FAILURE, message="no answer"),
}  # fmt: skip
MOVES = {
    "retry": Move(Status.PENDING, "backing off", delay=4.0, failure=FAILURE),
    "give up": Move(Status.FAILED, "exhausted", failure=FAILURE, policy="constant:delay=0"),
    "give back": Move(Status.PENDING, "given back", counts=False),
}
MAY_DIFFER = {"id", "payload", "tries", "due_us"}


def row(letter: Letter, move: Move) -> dict[str, object]:
    """Return what a move makes of *letter*, without what each letter keeps for itself."""
    after = changes.settled(letter, move, NOW)
    return {name: getattr(after, name) for name in Letter.__struct_fields__ if name not in MAY_DIFFER}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("field", OTHER_LETTERS)
def test_letters_that_come_to_different_rows_are_not_alike(move, field):
    other = replace(LETTER, **{field: OTHER_LETTERS[field]})
    if row(other, move) != row(LETTER, move):
        assert changes.likeness(other, move) != changes.likeness(LETTER, move)


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("field", OTHER_MOVES)
def test_moves_that_lead_to_different_rows_are_not_alike(move, field):
    other = replace(move, **{field: OTHER_MOVES[field]})
    if row(LETTER, other) != row(LETTER, move):
        assert changes.likeness(LETTER, other) != changes.likeness(LETTER, move)


def test_retries_at_different_times_are_alike_and_letters_given_back_for_different_times_are_not():
    retried, given_back = MOVES["retry"], MOVES["give back"]
    later = replace(retried, delay=9.0, draw=0.5, age=3.0)
    assert changes.likeness(LETTER, retried) == changes.likeness(LETTER, later)
    assert row(LETTER, retried) == row(LETTER, later)
    assert changes.likeness(LETTER, given_back) != changes.likeness(LETTER, replace(given_back, delay=9.0))
