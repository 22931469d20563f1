"""Plans are listed, paused, resumed and halted; one process at a time carries one out."""

from __future__ import annotations

import pytest
from tests.stores.samples import claim, dead, letter_id, put

from redrive.core.plan import Plan, PlanState
from redrive.errors import MoveRefused, PlanNotFound

OPERATOR = {"by": "ada", "reason": "fixed"}


def plan(name: str = "plan-1", **fields) -> Plan:
    return Plan(**{"id": name, "verb": "replay", "query": "status:failed", **OPERATOR, **fields})


def ids(letters: str) -> tuple[str, ...]:
    return tuple(letter_id(name) for name in letters)


async def state(store, name: str = "plan-1") -> PlanState:
    return (await store.plan(name)).state


async def test_plans_are_listed_newest_first_and_by_state(store):
    await dead(store, *"abc")
    for name in ("first", "second", "third", "fourth"):
        await store.start_plan(plan(name))
    await store.change_plan("second", "pause", **OPERATOR)
    await store.change_plan("third", "halt", **OPERATOR)
    await store.step("fourth", limit=10)

    assert [one.id for one in await store.plans()] == ["fourth", "third", "second", "first"]
    assert [one.id for one in await store.plans(limit=2)] == ["fourth", "third"]
    found = {state: [one.id for one in await store.plans(state)] for state in PlanState}
    assert found == {
        PlanState.RUNNING: ["first"],
        PlanState.PAUSED: ["second"],
        PlanState.HALTED: ["third"],
        PlanState.DONE: ["fourth"],
    }
    assert await store.plans() == [await store.plan(one.id) for one in await store.plans()]


async def test_a_paused_plan_acts_on_nothing_until_it_is_resumed(store):
    await dead(store, *"abcd")
    await store.start_plan(plan())
    assert (await store.step("plan-1", limit=1)).acted == ids("a")
    assert (await store.change_plan("plan-1", "pause", **OPERATOR)).state is PlanState.PAUSED
    refused = await store.step("plan-1", limit=10)
    assert (refused.acted, refused.plan.acted, refused.plan.state) == ((), 1, PlanState.PAUSED)

    await store.change_plan("plan-1", "resume", **OPERATOR)

    assert (await store.step("plan-1", limit=10)).acted == ids("bcd")
    assert await state(store) is PlanState.DONE


async def test_a_plan_may_begin_paused(store):
    await dead(store, "a")
    assert (await store.start_plan(plan(state=PlanState.PAUSED))).state is PlanState.PAUSED
    assert (await store.step("plan-1", limit=10)).acted == ()


async def test_a_halted_plan_acts_on_nothing_and_stays_halted(store):
    await dead(store, *"ab")
    await store.start_plan(plan())
    await store.step("plan-1", limit=1)
    await store.change_plan("plan-1", "halt", **OPERATOR)
    assert (await store.step("plan-1", limit=10)).acted == ()
    for verb in ("pause", "resume"):
        with pytest.raises(MoveRefused, match=f"cannot {verb} plan 'plan-1': it is halted"):
            await store.change_plan("plan-1", verb, **OPERATOR)
    assert (await store.change_plan("plan-1", "halt", **OPERATOR)).state is PlanState.HALTED
    assert await state(store) is PlanState.HALTED


@pytest.mark.parametrize("verb", ["pause", "resume", "halt"])
async def test_a_plan_that_is_done_is_not_changed(store, verb):
    await store.start_plan(plan())
    await store.step("plan-1", limit=1)
    with pytest.raises(MoveRefused, match=f"cannot {verb} plan 'plan-1': it is done"):
        await store.change_plan("plan-1", verb, **OPERATOR)


async def test_every_change_is_in_the_audit_log(store):
    await dead(store, "a")
    await store.start_plan(plan())
    for verb in ("pause", "resume", "halt"):
        await store.change_plan("plan-1", verb, by="eve", reason="too fast")
    newest = [(one.by, one.verb, one.target, one.count, one.reason) for one in await store.audit(limit=3)]
    assert newest == [("eve", f"plan {verb}", "plan-1", 0, "too fast") for verb in ("halt", "resume", "pause")]


async def test_a_plan_that_is_not_there_cannot_be_changed(store):
    with pytest.raises(PlanNotFound, match="'none'"):
        await store.change_plan("none", "pause", **OPERATOR)


async def test_a_change_may_bring_another_rate(store):
    await store.start_plan(plan(rate=5.0))
    assert (await store.plan("plan-1")).rate == 5.0
    assert (await store.change_plan("plan-1", "resume", **OPERATOR)).rate == 5.0
    assert (await store.change_plan("plan-1", "resume", **OPERATOR, rate=2.5)).rate == 2.5
    assert (await store.plan("plan-1")).rate == 2.5


async def test_one_worker_holds_a_plan_until_its_lease_ends(store, clock):
    await dead(store, *"abcdef")
    await store.start_plan(plan())
    assert (await store.step("plan-1", limit=1, worker="w1", lease=30)).acted == ids("a")
    kept = await store.plan("plan-1")
    assert (kept.holder, kept.held) == ("w1", True)

    refused = await store.step("plan-1", limit=1, worker="w2", lease=30)
    assert (refused.acted, refused.plan.holder, refused.plan.acted) == ((), "w1", 1)
    assert (await store.step("plan-1", limit=1)).acted == ()
    assert (await store.step("plan-1", limit=1, worker="w1", lease=30)).acted == ids("b")

    clock.advance(31)
    assert not (await store.plan("plan-1")).held
    assert (await store.step("plan-1", limit=1, worker="w2", lease=30)).acted == ids("c")
    assert (await store.step("plan-1", limit=1, worker="w1", lease=30)).acted == ()
    assert (await store.plan("plan-1")).holder == "w2"


async def test_a_step_of_nothing_lets_the_plan_go(store):
    await dead(store, *"abc")
    await store.start_plan(plan())
    await store.step("plan-1", limit=1, worker="w1", lease=30)
    gone = await store.step("plan-1", limit=0, worker="w1")
    assert (gone.acted, gone.plan.acted, gone.plan.state) == ((), 1, PlanState.RUNNING)
    assert (gone.plan.holder, gone.plan.held) == ("", False)
    assert (await store.step("plan-1", limit=9, worker="w2", lease=30)).acted == ids("bc")


async def test_no_process_holds_a_plan_that_is_paused_or_has_ended(store):
    await dead(store, *"abc")
    await store.start_plan(plan())
    await store.step("plan-1", limit=1, worker="w1", lease=30)
    assert (await store.change_plan("plan-1", "pause", **OPERATOR)).holder == ""
    await store.change_plan("plan-1", "resume", **OPERATOR)
    assert (await store.step("plan-1", limit=9, worker="w2", lease=30)).acted == ids("bc")
    assert ((await store.plan("plan-1")).holder, await state(store)) == ("", PlanState.DONE)


async def test_letters_of_a_paused_plan_may_be_acted_on_otherwise(store):
    await dead(store, *"ab")
    await put(store, "c")
    await store.start_plan(plan())
    await store.change_plan("plan-1", "pause", **OPERATOR)
    await store.act("replay", ids("a"), **OPERATOR)
    await store.change_plan("plan-1", "resume", **OPERATOR)
    assert (await store.step("plan-1", limit=9)).acted == ids("b")
    assert len(await claim(store)) == 3
