"""How a page advances a plan, and when the plan ends."""

from __future__ import annotations

import pytest

from redrive.core.plan import Plan, PlanState, advance, begun, room

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
    once = advance(PLAN, cursor="3", acted=2, skipped=1, further=True)
    twice = advance(once, cursor="5", acted=2, skipped=0, further=False)
    assert (once.cursor, once.acted, once.skipped, once.done) == ("3", 2, 1, False)
    assert (twice.cursor, twice.acted, twice.skipped, twice.done) == ("5", 4, 1, True)


def test_a_page_that_acted_on_nothing_does_not_end_the_plan_while_letters_are_left():
    assert not advance(PLAN, cursor="3", acted=0, skipped=0, further=True).done


@pytest.mark.parametrize(("acted", "done"), [(1, False), (2, True)])
def test_a_canary_ends_with_its_last_letter(acted, done):
    canary = Plan(verb="replay", query="", by="", reason="", limit=2)
    assert advance(canary, cursor="3", acted=acted, skipped=0, further=True).done is done
