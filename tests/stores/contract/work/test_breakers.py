"""What all workers share: breakers, retry budgets, and keys that were handled."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.core.breaker import BreakerRules, BreakerState
from redrive.core.budget import BudgetRules

RULES = BreakerRules(failures=3, ratio=0.5, window=60, open_for=30, probes=2)
BUDGET = BudgetRules(ratio=0.2, floor=10, burst=100)


async def test_a_new_breaker_lets_everything_through(store):
    assert await store.breakers() == {}
    assert await store.probe("payments", RULES, 7) == 7


async def test_a_breaker_opens_for_everybody_and_lets_nothing_through(store):
    await store.report("payments", RULES, successes=1, failures=2)
    opened = await store.report("payments", RULES, successes=0, failures=1)
    assert (opened.name, opened.state) == ("payments", BreakerState.OPEN)
    assert await store.breakers() == {"payments": replace(opened, rest=30)}
    assert await store.probe("payments", RULES, 7) == 0
    assert await store.probe("mail", RULES, 7) == 7


async def test_a_rested_breaker_lets_a_few_probes_through_and_closes_when_they_pass(store, clock):
    await store.report("payments", RULES, successes=0, failures=3)
    clock.advance(31)
    assert await store.probe("payments", RULES, 7) == 2
    assert await store.probe("payments", RULES, 7) == 0
    assert (await store.breakers())["payments"].state is BreakerState.HALF_OPEN
    await store.report("payments", RULES, successes=2, failures=0)
    assert (await store.breakers())["payments"].state is BreakerState.CLOSED
    assert await store.probe("payments", RULES, 7) == 7


async def test_a_failed_probe_opens_the_breaker_again(store, clock):
    await store.report("payments", RULES, successes=0, failures=3)
    clock.advance(31)
    await store.probe("payments", RULES, 1)
    assert (await store.report("payments", RULES, successes=0, failures=1)).state is BreakerState.OPEN
    clock.advance(29)
    assert await store.probe("payments", RULES, 7) == 0


async def test_old_outcomes_are_forgotten(store, clock):
    await store.report("payments", RULES, successes=0, failures=2)
    clock.advance(61)
    assert (await store.report("payments", RULES, successes=0, failures=1)).state is BreakerState.CLOSED


async def test_breakers_are_shown_as_they_stand_now(store, clock):
    await store.report("payments", RULES, successes=0, failures=3)
    clock.advance(31)
    assert (await store.breakers())["payments"].state is BreakerState.HALF_OPEN


@pytest.mark.parametrize("seconds", [3_600, -3_600])
async def test_a_clock_that_jumps_ends_the_rest_of_a_breaker_early(store, clock, seconds):
    await store.report("payments", RULES, successes=0, failures=3)
    clock.jump(seconds)
    assert (await store.breakers())["payments"].state is BreakerState.HALF_OPEN
    assert await store.probe("payments", RULES, 7) == 2


async def test_a_clock_that_jumps_forward_fills_a_retry_budget_and_one_that_jumps_back_does_not_empty_it(store, clock):
    await store.spend("work", BUDGET, firsts=0, retries=int(BUDGET.burst))
    clock.jump(3_600)
    assert await store.spend("work", BUDGET, firsts=0, retries=int(BUDGET.burst)) == 0
    clock.jump(-7_200)
    assert await store.spend("work", BUDGET, firsts=0, retries=1) == pytest.approx(1 / BUDGET.floor)


async def test_a_breaker_says_when_it_opened_by_the_wall_clock(store, clock):
    opened = await store.report("payments", RULES, successes=0, failures=3)
    assert opened.opened_at == pytest.approx(clock.wall_us() / 1e6)


async def test_an_empty_retry_budget_asks_for_a_wait(store, clock):
    burst, floor = BUDGET.burst, BUDGET.floor
    assert await store.spend("work", BUDGET, firsts=0, retries=int(burst)) == 0
    assert await store.spend("work", BUDGET, firsts=0, retries=20) == pytest.approx(20 / floor)
    assert await store.spend("other", BUDGET, firsts=0, retries=1) == 0
    clock.advance(10)
    assert await store.spend("work", BUDGET, firsts=0, retries=1) == 0


async def test_first_attempts_earn_retries(store):
    await store.spend("work", BUDGET, firsts=0, retries=int(BUDGET.burst))
    await store.spend("work", BUDGET, firsts=100, retries=0)
    assert await store.spend("work", BUDGET, firsts=0, retries=int(100 * BUDGET.ratio)) == 0


async def test_a_key_is_handled_once_per_handler(store):
    assert await store.handled("ship", "order-17")
    assert not await store.handled("ship", "order-17")
    assert await store.handled("bill", "order-17")
    assert await store.handled("ship", "order-18")
