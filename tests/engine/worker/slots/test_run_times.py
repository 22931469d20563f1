"""How many letters to claim ahead, as a table; and the mean run time that the table begins with."""

from __future__ import annotations

import pytest

from redrive.engine.worker.slots.run_times import LONGEST_WAIT, RunTimes, company, letters_ahead, too_few

MS = 0.001


@pytest.mark.parametrize(
    ("run", "parallel", "exchange", "most", "ahead"),
    [
        (None, 1, 2 * MS, 1_000, 0),  # nothing is known
        (1.0, 10, 2 * MS, 1_000, 0),  # seconds: nothing
        (51 * MS, 50, 2 * MS, 1_000, 0),  # a slot may take longer to become free than a letter may wait
        (20 * MS, 10, 2 * MS, 1_000, 13),  # slots that began together end together: a letter for each, and no more
        (5 * MS, 10, 2 * MS, 1_000, 30),  # 4 during an exchange, 12 while outcomes gather, 4 if one is late, and 10
        (5 * MS, 50, 2 * MS, 1_000, 150),
        (1 * MS, 50, 2 * MS, 1_000, 550),
        (1 * MS, 1, 2 * MS, 1_000, 11),  # the handler keeps the event loop: only one letter runs at once
        (0.01 * MS, 1, 0.2 * MS, 1_000, 101),  # microseconds: many
        (0.01 * MS, 10, 2 * MS, 1_000, 1_000),  # never more than the prefetch
        (5 * MS, 10, 1.0, 1_000, 50),  # a slow store: never more work than half of the longest wait
        (0.0, 10, 0.0, 64, 64),  # quicker than the clock
        (0.0, 10, 0.0, 0, 0),
    ],
)
def test_how_many_letters_to_hold_ready(run, parallel, exchange, most, ahead):
    assert letters_ahead(run, parallel, exchange, most) == ahead


@pytest.mark.parametrize("exchange", [0.5 * MS, 5 * MS, 0.1, 3.0])
@pytest.mark.parametrize("parallel", [1, 10, 50])
@pytest.mark.parametrize("run", [0.01 * MS, 1 * MS, 7 * MS, 49 * MS])
def test_the_last_letter_held_ready_begins_within_the_longest_wait(run, parallel, exchange):
    ahead = letters_ahead(run, parallel, exchange, 100_000)
    assert ahead * run / parallel <= max(LONGEST_WAIT / 2 + run / parallel, 0)


@pytest.mark.parametrize(
    ("exchange", "seconds"),
    [(0.0, 0.0), (0.1 * MS, 0.3 * MS), (2 * MS, 6 * MS), (4 * MS, 10 * MS), (1.0, 10 * MS)],
)
def test_outcomes_gather_for_some_exchanges_and_never_for_long(exchange, seconds):
    assert company(exchange) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("run", "parallel", "exchange", "letters"),
    [
        (None, 10, 2 * MS, 0),  # nothing is known
        (0.0, 10, 2 * MS, 0),  # quicker than the clock
        (5 * MS, 10, 2 * MS, 6),  # 4 during an exchange, and it may take half as long again
        (1 * MS, 50, 2 * MS, 150),
    ],
)
def test_with_how_many_ready_letters_an_exchange_may_not_wait(run, parallel, exchange, letters):
    assert too_few(run, parallel, exchange) == letters


def test_the_mean_is_the_time_that_slots_were_occupied_for_each_letter_that_ended():
    times = RunTimes(4)
    assert times.mean is None
    assert times.note(0.04, 4, 4) is True
    assert times.mean == pytest.approx(0.01)
    assert times.note(0.08, 4, 4) is False  # four letters run, and have run for 10 ms each
    assert times.mean == pytest.approx(0.02)


def test_recent_letters_count_most():
    times = RunTimes(4)
    times.note(100.0, 100, 4)
    times.note(100.0 + 0.001 * 200, 300, 4)
    assert times.mean == pytest.approx(0.001, rel=0.5)


def test_the_letters_that_run_at_once_are_those_of_recent_letters():
    times = RunTimes(4)
    times.note(1.0, 10, 4)
    times.note(1.1, 12, 1)
    assert times.parallel == 4
    times.note(2.0, 100, 1)
    assert times.parallel == 1
