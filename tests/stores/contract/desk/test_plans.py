"""Acting on many letters: a plan freezes who is meant and goes page by page."""

from __future__ import annotations

import pytest
from tests.stores.samples import (
    DELIVERED,
    act,
    claim,
    dead,
    draft,
    failure,
    get,
    give_up,
    letter_id,
    names,
    put,
    settle_all,
    status,
)

from redrive.core.letter import Status
from redrive.core.plan import Plan, PlanState
from redrive.core.query import parse
from redrive.errors import PlanNotFound
from redrive.stores.contract import books


def plan(query: str = "status:failed", verb: str = "replay", **fields) -> Plan:
    told = {"id": "plan-1", "verb": verb, "query": query, "by": "ada", "reason": "fixed"}
    return Plan(**{**told, **fields})


async def carry_out(store, plan_id: str = "plan-1", limit: int = 3) -> list[str]:
    """Step until the plan is done, and return the ids acted on, in order."""
    acted: list[str] = []
    for _ in range(100):
        step = await store.step(plan_id, limit=limit)
        acted += step.acted
        assert step.plan == await store.plan(plan_id)
        assert len(step.acted) <= limit
        if step.plan.done:
            return acted
    raise AssertionError("the plan never came to its end")


def ids(letters: str) -> list[str]:
    return [letter_id(name) for name in letters]


async def test_a_plan_acts_on_every_letter_of_its_query_once(store):
    await dead(store, *"abcdefgh")
    await put(store, "pending")
    await store.start_plan(plan())
    assert await carry_out(store) == ids("abcdefgh")
    assert (await store.plan("plan-1")).acted == 8
    assert {(await get(store, name)).cycles for name in "abcdefgh"} == {1}
    assert len(await claim(store)) == 9


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
async def test_pages_of_any_size_come_to_the_same(store, limit):
    await dead(store, *"abcdef")
    await store.start_plan(plan())
    assert await carry_out(store, limit=limit) == ids("abcdef")


async def test_a_plan_keeps_what_it_was_told_and_when_it_began(store, clock):
    sent = plan(limit=5, generation=3)
    kept = await store.start_plan(sent)
    assert (kept.id, kept.verb, kept.query, kept.by, kept.reason) == (
        "plan-1", "replay", "status:failed", "ada", "fixed"
    )  # fmt: skip
    assert (kept.limit, kept.generation, kept.created_us) == (5, 3, clock.wall_us())
    assert (kept.acted, kept.skipped, kept.done) == (0, 0, False)
    assert await store.plan("plan-1") == kept


async def test_a_plan_that_nobody_made_is_not_found(store):
    for call in (store.plan("nobody"), store.step("nobody", limit=1)):
        with pytest.raises(PlanNotFound, match="'nobody'"):
            await call


async def test_letters_that_fail_after_the_plan_began_are_not_part_of_it(store):
    await put(store, "running")
    [running] = await claim(store)
    await dead(store, "a")
    await store.start_plan(plan())
    await store.settle([(running, give_up())])
    await dead(store, "late")
    assert await carry_out(store) == ids("a")
    assert await status(store, "late") is await status(store, "running") is Status.FAILED


async def test_a_letter_that_fails_again_while_the_plan_runs_is_not_replayed_twice(store):
    await dead(store, *"abcd")
    await store.start_plan(plan())
    await store.step("plan-1", limit=2)
    assert sorted(await settle_all(store, give_up())) == ["a", "b"]
    assert await carry_out(store) == ids("cd")
    assert (await get(store, "a")).cycles == 1


async def test_a_letter_that_somebody_moved_meanwhile_is_left_alone(store):
    await dead(store, *"abcd")
    await store.start_plan(plan())
    await act(store, "archive", "b")
    await act(store, "restore", "b")
    await act(store, "replay", "c")
    assert await carry_out(store) == ids("ad")
    assert [(await get(store, name)).cycles for name in "abcd"] == [1, 0, 1, 1]


async def test_nothing_outside_the_query_is_touched(store):
    await dead(store, "a", "b")
    await put(store, draft("c", kind="invoice", failure=failure("other", fingerprint="g2")))
    before = await get(store, "c")
    await store.start_plan(plan("status:failed kind:order.*"))
    assert await carry_out(store) == ids("ab")
    assert await get(store, "c") == before


async def test_a_query_on_payload_and_error_text_acts_only_on_what_it_means(store):
    for n in range(6):
        payload = b'{"user": {"id": %d}}' % (n % 2)
        await put(store, draft(str(n), payload=payload, failure=failure(f"boom {n}", fingerprint=f"f{n}")))
    await store.start_plan(plan("status:failed payload.user.id:1 -error:~3"))
    assert await carry_out(store, limit=2) == [letter_id("1"), letter_id("5")]


async def test_a_letter_that_the_query_does_not_match_counts_nowhere(store):
    for n in range(6):
        await put(store, draft(str(n), payload=b'{"user": %d}' % n, failure=failure()))
    await store.start_plan(plan("status:failed payload.user:3", "archive"))
    assert await carry_out(store, limit=2) == [letter_id("3")]
    done = await store.plan("plan-1")
    assert (done.acted, done.skipped) == (1, 0)


@pytest.mark.parametrize(("limit", "steps"), [(2, 3), (3, 2), (5, 2), (6, 1), (7, 1)])
async def test_a_plan_ends_with_the_page_behind_which_no_letter_is_left(store, limit, steps):
    await dead(store, *"abcdef")
    await store.start_plan(plan())
    done = [(await store.step("plan-1", limit=limit)).plan.done for _ in range(steps)]
    assert done == [False] * (steps - 1) + [True]


async def test_what_a_plan_looked_at_and_how_far_is_known_to_its_store_alone(store):
    await dead(store, *"abc")
    started = await store.start_plan(plan(cutoff="x", cursor="y", acted=7, skipped=7, state=PlanState.DONE))
    assert (started.acted, started.skipped, started.done) == (0, 0, False)
    stepped = (await store.step("plan-1", limit=2)).plan
    assert all(isinstance(each, str) for each in (started.cutoff, started.cursor, stepped.cursor))
    assert stepped.cutoff == started.cutoff


async def test_a_canary_acts_on_no_more_than_its_limit(store):
    await dead(store, *"abcdef")
    await store.start_plan(plan(limit=4))
    assert await carry_out(store) == ids("abcd")
    assert await status(store, "e") is Status.FAILED


async def test_a_finished_plan_does_nothing_more(store):
    await dead(store, "a")
    await store.start_plan(plan())
    await carry_out(store)
    await settle_all(store, give_up())
    entries = await store.audit()
    step = await store.step("plan-1", limit=10)
    assert (step.acted, step.plan.done) == ((), True)
    assert await store.audit() == entries


async def test_a_plan_that_finds_nothing_is_done(store):
    await store.start_plan(plan())
    assert await carry_out(store) == []


async def test_the_cycle_remembers_the_plan_and_the_letter_its_generation(store):
    await dead(store, "a")
    await store.start_plan(plan(generation=7))
    await carry_out(store)
    letter = await get(store, "a")
    [cycle] = letter.failure_history
    assert (cycle.plan, cycle.replayed_by, cycle.reason, letter.generation) == ("plan-1", "ada", "fixed", 7)


async def test_every_page_that_acted_has_its_audit_entry(store):
    await dead(store, *"abcde")
    await store.start_plan(plan())
    await carry_out(store, limit=2)
    pages = [entry for entry in await store.audit() if entry.verb == "replay"]
    assert [entry.count for entry in pages] == [1, 2, 2]
    assert all("plan-1" in entry.target and entry.by == "ada" and entry.reason == "fixed" for entry in pages)


@pytest.mark.parametrize(
    ("verb", "query", "ends"),
    [
        ("archive", "status:failed", Status.ARCHIVED),
        ("cancel", "status:pending", Status.ARCHIVED),
        ("restore", "status:archived", Status.PENDING),
    ],
)
async def test_every_verb_can_be_planned(store, verb, query, ends):
    await dead(store, "a")
    await put(store, "b", "c")
    await act(store, "cancel", "c")
    name = {"archive": "a", "cancel": "b", "restore": "c"}[verb]
    await store.start_plan(plan(query, verb))
    assert await carry_out(store) == [letter_id(name)]
    assert await status(store, name) is ends


async def test_a_planned_purge_removes_and_counts(store):
    await put(store, *"abcd")
    await act(store, "cancel", "a", "b", "c")
    await store.start_plan(plan("status:archived", "purge"))
    assert await carry_out(store, limit=2) == ids("abc")
    assert books(await store.tallies())["purged"] == 3
    assert await settle_all(store, DELIVERED) == ["d"]


async def test_a_verb_touches_only_letters_it_is_for_whatever_the_query_says(store):
    await dead(store, "a")
    await put(store, "b")
    await store.start_plan(plan("kind:order.*", "replay"))
    before = await get(store, "b")
    assert await carry_out(store) == ids("a")
    assert await get(store, "b") == before


async def test_plans_without_an_id_get_one_each(store):
    await dead(store, *"ab")
    first, second = [await store.start_plan(plan(id="", by=by)) for by in ("ada", "bob")]

    assert "" not in {first.id, second.id}
    assert [(await store.plan(each.id)).by for each in (first, second)] == ["ada", "bob"]
    assert await carry_out(store, first.id) == ids("ab")


async def test_two_plans_over_the_same_letters_act_on_each_letter_once(store):
    await dead(store, *"abcd")
    await store.start_plan(plan())
    await store.start_plan(plan(id="plan-2"))
    await store.step("plan-1", limit=2)
    assert await carry_out(store, "plan-2") == ids("cd")
    assert await carry_out(store) == []
    assert names(await claim(store)) == [*"abcd"]


async def test_a_plan_judges_spans_as_of_its_start_however_long_it_takes(store, clock):
    await dead(store, "old")
    clock.advance(7_200)
    await dead(store, "young")
    await store.start_plan(plan("failed:>1h"))
    clock.advance(7_200)
    assert await carry_out(store) == ids(["old"])


# ---------------------------------------------------------------------- finding the letters of a plan


async def found(store, text: str) -> list[str]:
    return sorted(names((await store.find(parse(text))).letters))


async def test_the_letters_of_a_plan_are_found_by_it_whatever_became_of_them(store):
    await dead(store, *"abcd")
    await put(store, "other")
    await store.start_plan(plan(limit=3))
    await carry_out(store)
    assert await found(store, "plan:plan-1") == ["a", "b", "c"]
    claims = {names([each])[0]: each for each in await claim(store)}
    assert claims["a"].letter.plan == "plan-1"
    await store.settle([(claims["a"], DELIVERED), (claims["b"], give_up())])
    assert await found(store, "plan:plan-1 status:delivered") == ["a"]
    assert await found(store, "plan:plan-1 status:failed") == ["b"]
    assert await found(store, "plan:plan* status:in_flight") == ["c"]
    assert await found(store, "-plan:plan-1") == ["d", "other"]


@pytest.mark.parametrize(
    ("verb", "before"), [("replay", ()), ("archive", ()), ("restore", ("archive",)), ("cancel", ("replay",))]
)
async def test_every_verb_that_keeps_its_letters_leaves_its_plan_on_them(store, verb, before):
    await dead(store, "a")
    for earlier in before:
        await act(store, earlier, "a")
    assert (await get(store, "a")).plan is None
    await store.start_plan(plan("kind:*", verb))
    await carry_out(store)
    assert (await get(store, "a")).plan == "plan-1"


@pytest.mark.parametrize(
    ("planned", "by_id"),
    [("archive", "restore"), ("restore", "replay"), ("restore", "archive"), ("replay", "cancel")],
)
async def test_an_act_by_id_takes_the_letter_out_of_its_plan(store, planned, by_id):
    await dead(store, "a")
    if planned == "restore":
        await act(store, "archive", "a")
    await store.start_plan(plan("kind:*", planned))
    await carry_out(store)
    assert await found(store, "plan:plan-1") == ["a"]
    await act(store, by_id, "a")
    assert (await get(store, "a")).plan is None
    assert await found(store, "plan:*") == []


async def test_a_letter_that_was_cancelled_and_restored_by_plans_is_claimed_with_its_plan(store):
    await put(store, "a")
    for n, verb in enumerate(("cancel", "restore")):
        await store.start_plan(plan("kind:*", verb, id=f"plan-{n}"))
        await carry_out(store, f"plan-{n}")
    assert [each.letter.plan for each in await claim(store)] == ["plan-1"]


async def test_a_later_plan_takes_the_place_of_the_one_before(store):
    await dead(store, *"ab")
    for n, verb in enumerate(("archive", "restore", "replay")):
        await store.start_plan(plan("kind:*", verb, id=f"plan-{n}"))
        await carry_out(store, f"plan-{n}")
    assert await found(store, "plan:plan-2") == ["a", "b"]
    assert await found(store, "plan:plan-0,plan-1") == []


async def test_the_name_of_a_plan_may_be_any_text(store):
    await dead(store, "a")
    await store.start_plan(plan(id="a\x00b\x1ac"))
    await carry_out(store, "a\x00b\x1ac")
    assert (await get(store, "a")).plan == "a\x00b\x1ac"
    assert (await get(store, "a")).failure_history[0].plan == "a\x00b\x1ac"
    assert await found(store, "plan:a*c") == ["a"]
