"""A policy that follows the newest failure when a letter fails again elsewhere, and what `put` and `act` count."""

from __future__ import annotations

import pytest
from tests.stores.contract.arriving.test_failed_again import again
from tests.stores.samples import (
    QUEUE,
    after,
    check_books,
    claim,
    draft,
    failure,
    get,
    give_up,
    letter_id,
    names,
    needs,
    put,
    retry,
    settle_all,
)

from redrive.core import changes, following
from redrive.core.letter import Category, Status
from redrive.core.query import parse
from redrive.errors import DraftError, MoveRefused
from redrive.stores.contract import QueueSpec

FOLLOWS = ((following.CHOICE, b"category"), (following.RETRIES, b"3"))
TIMEOUT = failure("timed out", error_type="TimeoutError", category=Category.NETWORK, fingerprint="f3")
FULL_DISK = failure("no space", error_type="OSError", category=Category.RESOURCE, fingerprint="f4")
DENIED = failure("denied", error_type="PermissionError", category=Category.PERMISSION, fingerprint="f5")
EXPONENTIAL, LINEAR = (following.Follows(3, "none").policy(each).text for each in ("network", "resource"))


def first(kept_as: str = "a", **fields):
    told = {"failure": TIMEOUT, "policy": EXPONENTIAL, "headers": FOLLOWS, "delay": 60}
    return again(kept_as, **{**told, **fields})


def dead(kept_as: str = "a", **fields):
    return first(kept_as, failure=DENIED, policy="never", retry=False, delay=0, attempts=1, **fields)


async def keep(store, *drafts) -> None:
    needs(store, "retries")
    await store.put(list(drafts))


async def test_a_letter_that_waits_gets_the_policy_and_the_due_time_of_its_newer_failure(store, clock):
    await keep(store, first())
    clock.advance(10)
    await store.put([first("b", failure=FULL_DISK, policy=LINEAR, delay=300)])
    kept = await get(store, "a")
    assert (kept.status, kept.applied_policy, kept.attempts) == (Status.PENDING, LINEAR, 1)
    assert kept.due_us == clock.wall_us() + 300_000_000
    assert (kept.tries[-1].delay, kept.tries[-1].policy, kept.why) == (300.0, LINEAR, "failed elsewhere")


async def test_the_wait_is_that_of_the_run_that_it_is_at(store, clock):
    await keep(store, first(delay=0))
    await settle_all(store, retry(60))
    clock.advance(1)
    await store.put([first("b", failure=FULL_DISK)])
    kept = await get(store, "a")
    assert (kept.attempts, kept.due_us) == (2, clock.wall_us() + 600_000_000)


async def test_a_letter_that_waits_is_dead_when_its_newer_failure_is_never_retried(store):
    await keep(store, first(delay=0))
    await store.put([dead("b")])
    kept = await get(store, "a")
    assert (kept.status, kept.applied_policy, kept.attempts, kept.cycles) == (Status.FAILED, "never", 1, 0)
    assert await claim(store) == []
    assert [(group.fingerprint, group.count) for group in await store.groups(parse("status:failed"))] == [("f5", 1)]
    await check_books(store)


async def test_a_letter_that_waits_for_a_person_waits_for_its_retry_after_a_newer_failure(store, clock):
    await keep(store, dead())
    await store.put([first("b")])
    kept = await get(store, "a")
    assert (kept.status, kept.attempts, kept.cycles, kept.failed_us) == (Status.PENDING, 1, 0, None)
    clock.advance(60)
    assert [each.attempts for each in await claim(store)] == [2]
    await check_books(store)


async def test_a_letter_whose_tries_are_used_up_begins_a_new_cycle_by_the_policy_of_the_draft(store, clock):
    await keep(store, first(delay=0))
    await settle_all(store, give_up())
    before, newer = (
        await get(store, "a"),
        first("b", policy=LINEAR, headers=((following.RETRIES, b"5"), ("other", b""))),
    )
    await store.put([newer])
    expected, kept = changes.put_again(before, newer, clock.wall_us()), await get(store, "a")
    assert (kept.cycles, kept.policy, kept.headers) == (1, LINEAR, ((following.RETRIES, b"5"),))
    for field in expected.__struct_fields__:
        if field != "token":
            assert getattr(kept, field) == getattr(expected, field), field


async def test_a_policy_that_the_caller_gave_never_changes(store):
    await keep(store, first(headers=()))
    before = await get(store, "a")
    await store.put([first("b", failure=DENIED, policy="never", retry=False)])
    kept = await get(store, "a")
    assert (kept.status, kept.applied_policy, kept.due_us) == (Status.PENDING, EXPONENTIAL, before.due_us)


@pytest.mark.parametrize("newer", [TIMEOUT, FULL_DISK, DENIED], ids=lambda each: each.error_type)
@pytest.mark.parametrize("stands", ["pending", "retried", "for a person", "replayed"])
async def test_every_field_is_what_core_says(store, clock, stands, newer):
    await keep(store, dead() if stands == "for a person" else first(delay=0))
    if stands == "retried":
        await settle_all(store, retry(60))
    if stands == "replayed":
        await settle_all(store, give_up())
        await store.act("replay", [letter_id("a")], by="ada", reason="")
    clock.advance(7)
    before, told = await get(store, "a"), first("b", failure=newer, draw=0.5)
    await store.put([told])
    expected, kept = changes.put_again(before, told, clock.wall_us()), await get(store, "a")
    for field in expected.__struct_fields__:
        if field != "token":
            assert getattr(kept, field) == getattr(expected, field), field
    pending = [(each.category, each.policy, each.count) for each in await store.tallies(kept.status) if each.count]
    assert pending == [(kept.category, kept.applied_policy, 1)]


async def test_the_next_of_its_key_goes_when_the_first_dies_of_a_newer_failure(store, clock):
    needs(store, "retries")
    await store.declare([QueueSpec(name=QUEUE, ordered=True)])
    await store.put([first(key="k"), draft("c", key="k")])
    assert await claim(store) == []
    await store.put([dead("b", key="k")])
    assert names(await claim(store)) == ["c"]


async def test_one_behind_another_of_its_key_dies_and_comes_back_behind_it(store, clock):
    needs(store, "retries")
    await store.declare([QueueSpec(name=QUEUE, ordered=True)])
    await store.put([draft("c", key="k"), first(key="k", delay=0)])
    await store.put([dead("b", key="k")])
    await store.put([first("d", key="k", delay=0)])
    clock.advance(120)
    assert names(await claim(store, 5)) == ["c"]
    assert (await get(store, "a")).status is Status.PENDING


async def test_a_letter_that_waits_for_others_still_waits_for_them_when_it_is_back(store, clock):
    await keep(store, draft("c", delay=3600), first(after=(letter_id("c"),)))
    await store.put([dead("b", after=(letter_id("c"),))])
    await store.put([first("d", after=(letter_id("c"),))])
    clock.advance(120)
    assert await claim(store, 5) == []
    assert (await get(store, "a")).waits_for == 1


async def test_the_same_draft_again_changes_nothing_more(store):
    await keep(store, again("a", failure=failure(), retry=False, counters="wf"))
    newer = again(retry=False, counters="wf")
    assert await store.put([newer]) == await store.put([newer])
    kept = await get(store, "a")
    assert (kept.cycles, await store.add_up("wf", {})) == (1, {"exhausted": 2})
    await store.put([again("a", failure=failure(), retry=False, counters="wf")])
    assert (await get(store, "a"), await store.add_up("wf", {})) == (kept, {"exhausted": 2})


# ---------------------------------------------------------------------- counters


async def test_a_draft_without_tries_is_counted_as_exhausted_when_it_is_kept(store):
    await keep(store, again("a", retry=False, counters="wf"), again("b", idempotency_key="wf2", counters="wf"))
    assert await store.add_up("wf", {}) == {"exhausted": 1}


async def test_a_draft_that_waits_for_a_person_is_not_counted_as_exhausted(store):
    await keep(store, again("a", retry=False, policy="never", counters="wf"))
    assert await store.add_up("wf", {}) == {}


async def test_a_letter_that_a_newer_failure_exhausts_is_counted(store):
    none = ((following.CHOICE, b"category"), (following.RETRIES, b"0"))
    await keep(store, dead(headers=none, counters="wf"))
    await store.put([first("b", headers=none, counters="wf")])
    assert (await get(store, "a")).status is Status.FAILED
    assert await store.add_up("wf", {}) == {"exhausted": 1}


def test_counters_without_again_are_refused():
    with pytest.raises(DraftError, match="counters are named without again"):
        draft(counters="wf")


async def test_an_act_and_what_it_adds_are_one(store):
    await put(store, "a", after("b", "a"))
    await store.act("cancel", [letter_id("a")], by="ada", reason="", adds=("wf", {"archived": 1}))
    assert await store.add_up("wf", {}) == {"archived": 1}
    with pytest.raises(MoveRefused):
        await store.act("purge", [letter_id("a")], by="ada", reason="", adds=("wf", {"archived": 1}))
    assert await store.add_up("wf", {}) == {"archived": 1}
