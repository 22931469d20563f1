from __future__ import annotations

import pytest
from tests.stores.samples import (
    DELIVERED,
    act,
    after,
    claim,
    dead,
    draft,
    find_all,
    get,
    letter_id,
    names,
    put,
    settle_all,
)

from redrive.core.plan import Plan, PlanState
from redrive.errors import PlanNotFound
from redrive.stores.contract import Retention, books

DAY = 86_400.0
DEFAULT = Retention()


async def one_of_each(store) -> None:
    """Leave one letter in every status, named after it."""
    await dead(store, "failed")
    await put(store, "delivered")
    await settle_all(store, DELIVERED)
    await put(store, "in_flight")
    await claim(store)
    await put(store, "archived", "pending")
    await act(store, "cancel", "archived")


async def test_delivered_letters_go_after_a_week_archived_ones_after_a_month_and_the_rest_never(store, clock):
    await one_of_each(store)
    clock.advance(7 * DAY - 1)
    assert await store.retain(DEFAULT) == 0
    clock.advance(1)
    assert await store.retain(DEFAULT) == 1
    assert await store.get(letter_id("delivered")) is None
    clock.advance(23 * DAY)
    assert await store.retain(DEFAULT) == 1
    clock.advance(10_000 * DAY)
    assert await store.retain(DEFAULT) == 0
    assert sorted(names(await find_all(store))) == ["failed", "in_flight", "pending"]


async def test_dead_letters_go_by_time_only_if_the_user_says_so(store, clock):
    await one_of_each(store)
    clock.advance(DAY)
    assert await store.retain(Retention(delivered=None, archived=None, failed=DAY)) == 1
    assert await store.get(letter_id("failed")) is None
    assert len(await find_all(store)) == 4


async def test_nothing_goes_when_everything_is_kept_for_ever(store, clock):
    await one_of_each(store)
    clock.advance(10_000 * DAY)
    assert await store.retain(Retention(delivered=None, archived=None)) == 0


async def test_what_goes_is_counted_as_purged(store, clock):
    await one_of_each(store)
    clock.advance(30 * DAY)
    await store.retain(DEFAULT)
    kept = books(await store.tallies())
    assert (kept["enqueued"], kept["purged"], kept["delivered"], kept["archived"]) == (5, 2, 0, 0)


async def test_retention_counts_from_when_a_letter_came_to_rest(store, clock):
    await put(store, draft("a", delay=6 * DAY))
    clock.advance(6 * DAY)
    await settle_all(store, DELIVERED)
    clock.advance(6 * DAY)
    assert await store.retain(DEFAULT) == 0
    clock.advance(DAY)
    assert await store.retain(DEFAULT) == 1


async def test_small_looks_reach_every_letter_in_the_end(store, clock):
    await put(store, *(str(n) for n in range(25)))
    await settle_all(store, DELIVERED)
    await dead(store, *(f"dead {n}" for n in range(10)))
    clock.advance(8 * DAY)
    removed = [await store.retain(DEFAULT, limit=4) for _ in range(12)]
    assert sum(removed) == 25
    assert max(removed) <= 4
    await put(store, "later")
    await settle_all(store, DELIVERED)
    clock.advance(8 * DAY)
    assert sum([await store.retain(DEFAULT, limit=4) for _ in range(8)]) == 1


async def test_a_letter_that_waited_for_one_that_is_gone_runs_all_the_same(store, clock):
    await put(store, "a", after("b", "a", delay=30 * DAY))
    await settle_all(store, DELIVERED)
    clock.advance(30 * DAY)
    assert await store.retain(DEFAULT) == 1
    assert names(await claim(store)) == ["b"]


async def test_the_idempotency_key_of_a_letter_that_is_gone_is_free(store, clock):
    await put(store, draft("a", idempotency_key="17"))
    await settle_all(store, DELIVERED)
    clock.advance(8 * DAY)
    await store.retain(DEFAULT)
    await put(store, draft("b", idempotency_key="17"))
    assert (await get(store, "b")).idempotency_key == "17"


async def test_a_handled_key_is_forgotten_once_its_letters_are_gone_and_its_time_is_over(store, clock):
    await put(store, draft("a", idempotency_key="17"), draft("b"))
    for key in ("17", letter_id("b"), "of nobody"):
        assert await store.handled("ship", key)
    await settle_all(store, DELIVERED)
    clock.advance(31 * DAY)
    await store.retain(Retention(delivered=None, handled=None))
    assert not await store.handled("ship", "of nobody")  # kept for ever
    await store.retain(Retention(delivered=None, handled=32 * DAY))
    assert not await store.handled("ship", "of nobody")  # its time is not over
    await store.retain(Retention(delivered=None))
    assert await store.handled("ship", "of nobody")
    assert not await store.handled("ship", "17")  # a letter with the key is kept
    assert not await store.handled("ship", letter_id("b"))  # and one with this id
    await store.retain(DEFAULT)
    assert await store.handled("ship", "17")
    assert await store.handled("ship", letter_id("b"))


async def test_small_looks_reach_every_handled_key_in_the_end(store, clock):
    await put(store, *(draft(str(n), idempotency_key=f"key {n:02}") for n in range(10)))
    for n in range(25):
        await store.handled("ship", f"key {n:02}")
    clock.advance(31 * DAY)
    for _ in range(8):
        await store.retain(DEFAULT, limit=4)
    fresh = [n for n in range(25) if await store.handled("ship", f"key {n:02}")]
    assert fresh == list(range(10, 25))  # the letters of the first ten are kept


# ---------------------------------------------------------------------- plans


def plan(plan_id: str, query: str = "status:failed", **fields) -> Plan:
    return Plan(id=plan_id, verb="replay", query=query, by="ada", reason="fixed", **fields)


async def plans_kept(store) -> set[str]:
    return {each.id for each in await store.plans()}


async def test_a_plan_goes_a_while_after_it_is_done_or_halted_and_never_while_it_is_open(store, clock):
    await dead(store, "a")
    for plan_id in ("done", "halted", "running", "paused"):
        await store.start_plan(plan(plan_id))
    await store.change_plan("paused", "pause", by="ada", reason="")
    clock.advance(50 * DAY)  # counts from the end, not from the beginning
    assert (await store.step("done", limit=10)).plan.done
    await store.change_plan("halted", "halt", by="ada", reason="")
    clock.advance(90 * DAY - 1)
    await store.retain(DEFAULT)
    assert await plans_kept(store) == {"done", "halted", "running", "paused"}
    clock.advance(1)
    await store.retain(DEFAULT)
    assert await plans_kept(store) == {"running", "paused"}
    with pytest.raises(PlanNotFound):
        await store.plan("done")
    assert (await store.change_plan("paused", "resume", by="ada", reason="")).state is PlanState.RUNNING
    assert {"plan replay", "plan halt", "replay"} <= {entry.verb for entry in await store.audit()}  # the log keeps all


async def test_plans_stay_when_they_are_kept_for_ever(store, clock):
    await store.start_plan(plan("done"))
    assert (await store.step("done", limit=10)).plan.done
    clock.advance(10_000 * DAY)
    await store.retain(Retention(plans=None))
    assert await plans_kept(store) == {"done"}
    await store.retain(Retention(plans=10_000 * DAY))
    assert await plans_kept(store) == set()


async def test_small_looks_reach_every_plan_in_the_end(store, clock):
    for n in range(9):
        await store.start_plan(plan(f"plan {n}"))
        if n % 3:
            await store.step(f"plan {n}", limit=10)
    clock.advance(91 * DAY)
    for _ in range(3):
        await store.retain(DEFAULT, limit=4)
    assert await plans_kept(store) == {"plan 0", "plan 3", "plan 6"}
    await store.step("plan 0", limit=10)
    clock.advance(91 * DAY)
    for _ in range(2):  # and round again
        await store.retain(DEFAULT, limit=4)
    assert await plans_kept(store) == {"plan 3", "plan 6"}
