"""Retries are a share of first attempts plus a floor; beyond it they wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.budget import Budget, BudgetRules, spend
from redrive.errors import PolicyError

RULES = BudgetRules(ratio=0.2, floor=10, burst=100, longest=300)
EMPTY = Budget(0.0, 1_000.0)


def test_a_new_budget_is_full():
    assert spend(None, RULES, 0, 100, 1_000) == (Budget(0, 1_000), 0)


@pytest.mark.parametrize(
    ("firsts", "retries", "later", "wait"),
    [
        (100, 20, 0, 0),  # a fifth of the first attempts
        (0, 10, 1, 0),  # the floor
        (100, 30, 1, 0),  # both
        (0, 1, 0, 0.1),  # the first that is owed
        (0, 50, 1, 4),
        (0, 0, 0, 0),
        (10**6, 100, 0, 0),  # never more than the burst is saved
        (10**6, 110, 0, 1),
        (0, 10**9, 0, 300),  # a wait has an end
    ],
)
def test_retries_beyond_the_budget_wait_until_it_is_paid_back(firsts, retries, later, wait):
    assert spend(EMPTY, RULES, firsts, retries, 1_000 + later)[1] == pytest.approx(wait)


def test_debts_add_up_and_are_paid_by_time():
    budget, first = spend(EMPTY, RULES, 0, 10, 1_000)
    budget, second = spend(budget, RULES, 0, 10, 1_000)
    _, third = spend(budget, RULES, 0, 10, 1_002)
    assert (first, second, third) == (1, 2, 1)


def test_a_debt_is_never_larger_than_the_longest_wait_pays_back():
    budget, _ = spend(EMPTY, RULES, 0, 10**9, 1_000)
    assert spend(budget, RULES, 0, 1, 1_000 + RULES.longest)[1] == pytest.approx(0.1)


def test_first_attempts_never_wait():
    budget, _ = spend(EMPTY, RULES, 0, 1_000, 1_000)
    assert spend(budget, RULES, 1, 0, 1_000)[1] == 0


def test_a_clock_that_jumps_back_costs_nothing_and_earning_goes_on():
    budget, wait = spend(EMPTY, RULES, 0, 0, 10)
    assert (budget, wait) == (Budget(0, 10), 0)
    assert spend(budget, RULES, 0, 10, 11)[1] == 0


def test_a_budget_that_could_never_be_paid_back_is_refused():
    with pytest.raises(PolicyError):
        BudgetRules(floor=0)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(-1e6, 1e6)), max_size=20))
def test_no_wait_is_negative_or_longer_than_the_longest(steps):
    budget, now = None, 0.0
    for firsts, retries, passed in steps:
        now += passed
        budget, wait = spend(budget, RULES, firsts, retries, now)
        assert 0 <= wait <= RULES.longest
        assert budget.tokens <= RULES.burst
