"""How a page advances a plan, and when the plan ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.core.plan import Plan, PlanState, advance, begun, changed, is_over, room

PLAN = Plan(id="p", verb="replay", query="status:failed", by="ada", reason="fixed", cutoff="7")


def test_a_plan_begins_with_nothing_done_whatever_it_was_given():
    used = Plan(
        verb="replay", query="kind:*", by="ada", reason="", cursor="9", acted=3, skipped=2, state=PlanState.DONE
    )
    fresh = begun(used, 17, 1_000)
    assert (fresh.id, fresh.cutoff, fresh.created_us) == ("3e8-11", "17", 1_000)
    assert (fresh.cursor, fresh.acted, fresh.skipped, fresh.done) == ("", 0, 0, False)


def test_a_plan_keeps_the_name_it_was_given():
    assert begun(PLAN, 17, 1_000).id == "p"


@pytest.mark.parametrize(("limit", "acted", "page", "expected"), [(None, 5, 10, 10), (8, 5, 10, 3), (8, 8, 10, 0)])
def test_a_page_acts_on_no_more_than_the_plan_may(limit, acted, page, expected):
    assert room(Plan(verb="replay", query="", by="", reason="", limit=limit, acted=acted), page) == expected


def test_pages_add_up():
    once = advance(PLAN, cursor="3", acted=2, skipped=1, further=True, now_us=7)
    twice = advance(once, cursor="5", acted=2, skipped=0, further=False, now_us=8)
    assert (once.cursor, once.acted, once.skipped, once.done) == ("3", 2, 1, False)
    assert (twice.cursor, twice.acted, twice.skipped, twice.done) == ("5", 4, 1, True)


def test_a_page_that_acted_on_nothing_does_not_end_the_plan_while_letters_are_left():
    assert not advance(PLAN, cursor="3", acted=0, skipped=0, further=True, now_us=7).done


@pytest.mark.parametrize(("acted", "done"), [(1, False), (2, True)])
def test_a_canary_ends_with_its_last_letter(acted, done):
    canary = Plan(verb="replay", query="", by="", reason="", limit=2)
    assert advance(canary, cursor="3", acted=acted, skipped=0, further=True, now_us=7).done is done


def test_a_plan_notes_when_it_ended():
    done = advance(PLAN, cursor="3", acted=2, skipped=0, further=False, now_us=8)
    halted = changed(PLAN, "halt", now_us=9)
    again = changed(halted, "halt", now_us=99)
    assert (PLAN.ended_us, done.ended_us, halted.ended_us, again.ended_us) == (0, 8, 9, 9)


@pytest.mark.parametrize(("state", "before", "over"), [
    (PlanState.DONE, 8, True), (PlanState.DONE, 7, False), (PlanState.HALTED, 8, True),
    (PlanState.RUNNING, 99, False), (PlanState.PAUSED, 99, False),
])  # fmt: skip
def test_a_plan_is_over_only_once_it_has_ended(state, before, over):
    ended = 0 if state in (PlanState.RUNNING, PlanState.PAUSED) else 8
    assert is_over(replace(PLAN, state=state, ended_us=ended), before) is over
