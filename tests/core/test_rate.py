"""The token bucket of a queue's rate."""

from __future__ import annotations

import pytest

from redrive.core.rate import Bucket, full, refilled, room, taken


@pytest.mark.parametrize(("rate", "at_once"), [(0.1, 1), (1, 1), (4, 4), (4.9, 4)])
def test_a_second_worth_may_begin_at_once_and_always_one(rate, at_once):
    assert room(full(rate, 100)) == at_once


def test_time_fills_it_but_not_beyond_a_second_worth():
    empty = taken(full(4, 100), 4)
    assert [room(refilled(empty, 4, 100 + passed)) for passed in (0, 0.25, 0.5, 1, 3_600)] == [0, 1, 2, 4, 4]


def test_ten_refills_of_a_tenth_make_one_letter():
    bucket = taken(full(1, 0), 1)
    for n in range(1, 11):
        bucket = refilled(bucket, 1, n * 0.1)
    assert room(bucket) == 1


def test_a_clock_that_was_set_back_earns_nothing_and_goes_on_from_there():
    back = refilled(Bucket(0.0, 100), 2, 40)
    assert back == Bucket(0.0, 40)
    assert room(refilled(back, 2, 41)) == 2
