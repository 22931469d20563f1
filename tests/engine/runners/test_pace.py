from __future__ import annotations

from redrive.engine.runners.pace import Pace

SOON, LATE = 0.001, 0.021  # seconds


def after(*seconds: float) -> Pace:
    pace = Pace()
    for each in seconds:
        pace.note(each)
    return pace


def test_a_handler_is_quick_once_a_hundred_letters_in_a_row_ended_soon():
    assert not after().is_quick
    assert not after(*[SOON] * 99).is_quick
    assert after(*[SOON] * 100).is_quick


def test_one_letter_that_took_long_is_enough_to_be_careful_for_the_next_hundred():
    assert not after(*[SOON] * 1_000, LATE).is_quick
    assert not after(*[SOON] * 1_000, LATE, *[SOON] * 99).is_quick
    assert after(*[SOON] * 1_000, LATE, *[SOON] * 100).is_quick
