"""A breaker opens, rests, probes and closes; and never sticks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.breaker import Breaker, BreakerRules, BreakerState, look, record, take_probes
from redrive.errors import PolicyError

RULES = BreakerRules()
NEW = Breaker("payments")
CLOSED, OPEN, HALF_OPEN = BreakerState


def opened(at: float = 100.0) -> Breaker:
    return record(NEW, RULES, 0, 5, at)


def test_five_failures_open_it():
    assert record(NEW, RULES, 0, 4, 100).state is CLOSED
    assert opened().state is OPEN


def test_failures_add_up_over_reports_within_a_window():
    breaker = NEW
    for now in (100, 110, 120, 130, 140):
        assert breaker.state is CLOSED
        breaker = record(breaker, RULES, 0, 1, now)
    assert breaker.state is OPEN


def test_failures_of_an_old_window_are_forgotten():
    breaker = record(record(NEW, RULES, 0, 4, 100), RULES, 0, 4, 161)
    assert (breaker.state, breaker.failures) == (CLOSED, 4)


def test_few_failures_among_many_successes_do_not_open_it():
    breaker = record(NEW, RULES, 95, 5, 100)
    assert breaker.state is CLOSED
    assert record(breaker, RULES, 0, 90, 101).state is OPEN


def test_an_open_breaker_lets_nothing_through():
    assert take_probes(opened(100), RULES, 10, 110) == (opened(100), 0)


def test_outcomes_of_letters_begun_before_it_opened_do_not_move_an_open_breaker():
    assert record(opened(100), RULES, 50, 50, 110) == opened(100)


def test_a_rested_breaker_lets_only_its_probes_through():
    breaker, allowed = take_probes(opened(100), RULES, 10, 130)
    assert (breaker.state, allowed) == (HALF_OPEN, 3)
    assert take_probes(breaker, RULES, 10, 131)[1] == 0


def test_probes_may_leave_one_by_one():
    breaker, taken = opened(100), []
    for _ in range(5):
        breaker, allowed = take_probes(breaker, RULES, 1, 130)
        taken.append(allowed)
    assert taken == [1, 1, 1, 0, 0]


def test_passed_probes_close_it():
    breaker, _ = take_probes(opened(100), RULES, 10, 130)
    breaker = record(breaker, RULES, 2, 0, 131)
    assert breaker.state is HALF_OPEN
    breaker = record(breaker, RULES, 1, 0, 132)
    assert (breaker.state, breaker.failures) == (CLOSED, 0)


def test_a_failed_probe_opens_it_for_another_rest():
    breaker, _ = take_probes(opened(100), RULES, 10, 130)
    breaker = record(breaker, RULES, 2, 1, 131)
    assert (breaker.state, breaker.opened_at) == (OPEN, 131)


def test_probes_that_nobody_reports_are_let_out_again():
    breaker, _ = take_probes(opened(100), RULES, 10, 130)
    assert take_probes(breaker, RULES, 10, 159)[1] == 0
    assert take_probes(breaker, RULES, 10, 160)[1] == 3


def test_a_clock_that_jumps_back_does_not_keep_it_open():
    breaker = look(opened(100_000), RULES, 50)
    assert (breaker.state, take_probes(breaker, RULES, 10, 50)[1]) == (HALF_OPEN, 3)


def test_a_closed_breaker_lets_everything_through():
    assert take_probes(NEW, RULES, 10, 100)[1] == 10
    assert take_probes(NEW, RULES, -1, 100)[1] == 0


@pytest.mark.parametrize(
    "slip", [{"failures": 0}, {"probes": 0}, {"window": 0}, {"open_for": -1}, {"ratio": 1.5}, {"ratio": -0.1}]
)
def test_rules_that_make_no_sense_are_refused(slip):
    with pytest.raises(PolicyError):
        BreakerRules(**slip)


EVENTS = st.tuples(st.sampled_from(["report", "probe"]), st.integers(0, 9), st.integers(0, 9), st.floats(-100, 100))


@given(st.lists(EVENTS, max_size=30))
def test_whatever_happened_it_closes_after_a_rest_and_good_probes(events):
    breaker, now = NEW, 1_000.0
    for kind, first, second, passed in events:
        now += passed
        if kind == "report":
            breaker = record(breaker, RULES, first, second, now)
        else:
            breaker, allowed = take_probes(breaker, RULES, first, now)
            assert 0 <= allowed <= first
    now += RULES.open_for + RULES.window
    breaker, allowed = take_probes(breaker, RULES, 10, now)
    assert allowed > 0
    assert record(breaker, RULES, RULES.probes, 0, now).state is CLOSED
