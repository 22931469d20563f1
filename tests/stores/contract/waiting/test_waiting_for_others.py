"""Letters that run after others: `after`."""

from __future__ import annotations

import asyncio

import pytest
from tests.stores.samples import (
    DELIVERED,
    LEASE,
    WANT,
    WORKER,
    act,
    after,
    claim,
    dead,
    draft,
    failure,
    find_all,
    get,
    give_up,
    letter_id,
    lost,
    names,
    order_lane,
    ordered,
    put,
    retry,
    settle_all,
    status,
)

from redrive.core.facts import Died
from redrive.core.letter import Status
from redrive.core.plan import Plan
from redrive.engine.stranded import fail_stranded
from redrive.errors import LetterNotFound, MoveRefused
from redrive.stores.contract import Retention


async def test_a_letter_runs_once_those_before_it_are_delivered(store):
    await put(store, "a", "b", after("c", "a", "b"))
    first, second = await claim(store)
    await store.settle([(first, DELIVERED)])
    assert await claim(store) == []
    await store.settle([(second, DELIVERED)])
    assert await settle_all(store, DELIVERED) == ["c"]


async def test_a_waiting_letter_is_pending_and_visible_but_not_runnable(store, clock):
    await put(store, "a", after("b", "a"))
    await claim(store)
    clock.advance(1e6)
    assert await status(store, "b") is Status.PENDING
    assert (await get(store, "b")).after == (letter_id("a"),)
    assert not (await store.backlog([WANT])).runnable


async def test_a_letter_may_wait_for_an_earlier_one_of_the_same_call(store):
    await store.put([draft("a"), after("b", "a")])
    assert [await settle_all(store, DELIVERED), await settle_all(store, DELIVERED)] == [["a"], ["b"]]


async def test_an_unknown_letter_to_wait_for_is_refused_and_nothing_is_kept(store):
    with pytest.raises(LetterNotFound, match=letter_id("unknown")):
        await store.put([draft("a"), after("b", "unknown")])
    assert await find_all(store) == []


async def test_a_letter_cannot_wait_for_itself(store):
    with pytest.raises(LetterNotFound):
        await store.put([after("a", "a")])


async def test_a_delivered_letter_needs_no_waiting_for(store):
    await put(store, "a")
    await settle_all(store, DELIVERED)
    await put(store, after("b", "a"))
    assert names(await claim(store)) == ["b"]


async def test_naming_a_letter_twice_waits_for_it_once(store):
    await put(store, "a", after("b", "a", "a"))
    assert [await settle_all(store, DELIVERED), await settle_all(store, DELIVERED)] == [["a"], ["b"]]


async def test_a_letter_waits_while_another_is_retried_failed_or_archived_until_its_replay_is_delivered(store):
    await put(store, "a", after("b", "a"))
    await settle_all(store, retry())
    assert await settle_all(store, give_up()) == ["a"]
    assert await claim(store) == []
    await act(store, "archive", "a")
    assert await claim(store) == []
    await act(store, "restore", "a")
    await act(store, "replay", "a")
    assert [await settle_all(store, DELIVERED), await settle_all(store, DELIVERED)] == [["a"], ["b"]]


async def test_a_letter_may_be_put_to_wait_for_a_dead_one(store):
    await dead(store, "a")
    await put(store, after("b", "a"))
    assert await claim(store) == []
    await act(store, "replay", "a")
    assert [await settle_all(store, DELIVERED), await settle_all(store, DELIVERED)] == [["a"], ["b"]]


async def test_a_letter_that_another_one_waits_for_is_not_purged(store):
    await put(store, "a", after("b", "a"))
    await act(store, "cancel", "a")
    with pytest.raises(MoveRefused, match=f"letter '{letter_id('b')}' waits for it"):
        await act(store, "purge", "a")
    plan = await store.start_plan(Plan(verb="purge", query="status:archived", by="ada", reason=""))
    step = await store.step(plan.id, limit=10)
    assert (step.acted, step.skipped, step.plan.done) == ((), 1, True)
    assert await status(store, "a") is Status.ARCHIVED


async def test_retention_keeps_what_another_letter_waits_for(store, clock):
    await put(store, "a", "c", after("b", "a"))
    await act(store, "cancel", "a", "c")
    clock.advance(100)
    assert await store.retain(Retention(archived=50)) == 1
    assert await status(store, "a") is Status.ARCHIVED


async def test_a_dead_letter_would_wait_after_its_replay_so_what_it_waits_for_is_kept(store):
    await put(store, "a", after("b", "a", failure=failure()))
    await act(store, "cancel", "a")
    with pytest.raises(MoveRefused):
        await act(store, "purge", "a")


async def test_letters_that_wait_for_each_other_are_purged_together(store):
    await put(store, "a", after("b", "a"), after("c", "b"))
    await act(store, "cancel", "a", "b", "c")
    await act(store, "purge", "a", "b", "c")
    assert await find_all(store) == []


async def test_a_restored_letter_whose_predecessor_was_purged_waits_and_stays_visible(store, clock):
    await put(store, "a", after("b", "a"))
    await act(store, "cancel", "a", "b")
    await act(store, "purge", "a")
    await act(store, "restore", "b")
    clock.advance(1e6)
    assert await claim(store) == []
    assert await status(store, "b") is Status.PENDING


# ---------------------------------------------------------------------- what a dead letter means for those that wait


async def failed(store) -> list[str]:
    """Do what a worker does at every sweep; return the names of those that fail."""
    facts = []
    await fail_stranded(store, facts.append, worker=WORKER, lease=LEASE)
    return [fact.last_error for fact in facts if isinstance(fact, Died)]


@pytest.mark.parametrize("come_to_rest", ["failed", "archived"])
async def test_a_letter_that_says_so_runs_although_the_one_before_it_is_dead(store, come_to_rest):
    await put(store, "a", after("b", "a", after_failure="run"), after("c", "a"))
    assert await store.stranded(100) == []
    assert await claim_one_and(store, come_to_rest) == "a"
    assert await failed(store) == []
    assert await settle_all(store, DELIVERED) == ["b"]
    assert (await get(store, "c")).waits_for == 1


async def claim_one_and(store, come_to_rest: str) -> str:
    if come_to_rest == "archived":
        await act(store, "cancel", "a")
        return "a"
    [name] = await settle_all(store, give_up())
    return name


async def test_a_letter_that_says_so_fails_with_the_one_before_it_without_a_run(store):
    await put(store, "a", after("b", "a", after_failure="fail"), after("c", "b", after_failure="fail"))
    await settle_all(store, give_up())
    [told] = await failed(store)
    b = await get(store, "b")
    assert (b.status, b.attempts, b.why, b.error_type) == (Status.FAILED, 0, "after_failed", "DependencyFailed")
    assert f"{letter_id('a')} (failed)" in told
    assert len(await failed(store)) == 1
    assert await status(store, "c") is Status.FAILED
    assert await failed(store) == []


async def test_a_letter_that_failed_with_another_waits_again_once_both_are_replayed(store):
    await put(store, "a", after("b", "a", after_failure="fail"))
    await settle_all(store, give_up())
    await failed(store)
    await act(store, "replay", "a", "b")
    assert await failed(store) == []
    assert [await settle_all(store, DELIVERED), await settle_all(store, DELIVERED)] == [["a"], ["b"]]


async def test_a_letter_put_to_wait_for_a_dead_one_does_what_it_says(store):
    await dead(store, "a")
    await put(store, after("b", "a", after_failure="run"), after("c", "a", after_failure="fail"), after("d", "a"))
    assert len(await failed(store)) == 1
    assert await settle_all(store, DELIVERED) == ["b"]
    assert [await status(store, name) for name in "cd"] == [Status.FAILED, Status.PENDING]


async def test_a_letter_that_runs_after_a_failure_still_waits_for_the_others(store):
    await put(store, "a", draft("other", delay=60), after("b", "a", "other", after_failure="run"))
    await settle_all(store, give_up())
    await failed(store)
    assert (await get(store, "b")).waits_for == 1
    assert await claim(store) == []


async def test_a_letter_behind_another_of_its_key_fails_in_its_turn(store):
    await order_lane(store)
    await put(store, "a", ordered("first"), ordered("b", after=(letter_id("a"),), after_failure="fail"))
    await settle_all(store, give_up())
    assert await store.stranded(100) == []
    assert await store.take(letter_id("b"), lease=LEASE, worker=WORKER, waiting=True) is None
    assert await settle_all(store, DELIVERED, queue="lane") == ["first"]
    assert len(await failed(store)) == 1
    await put(store, ordered("next"))
    assert await settle_all(store, DELIVERED, queue="lane") == ["next"]


async def test_a_worker_that_dies_while_it_fails_a_letter_leaves_it_waiting(store, clock):
    await put(store, "a", after("b", "a", after_failure="fail"))
    await settle_all(store, give_up())
    [name] = await store.stranded(100)
    assert await store.take(name, lease=LEASE, worker=WORKER) is None
    assert await store.take(name, lease=LEASE, worker=WORKER, waiting=True) is not None
    clock.advance(LEASE + 1)
    await store.settle([(each, lost()) for each in await store.expired(10)])
    assert await claim(store) == []
    assert len(await failed(store)) == 1


async def test_what_a_letter_does_after_a_failure_is_kept(store):
    await put(store, "a", after("b", "a", after_failure="run"))
    assert (await get(store, "b")).after_failure == "run"


async def test_chains_and_fans_run_in_their_order(store):
    await put(store, "a", after("b1", "a"), after("b2", "a"), after("c", "b1", "b2"))
    rounds = [sorted(await settle_all(store, DELIVERED)) for _ in range(4)]
    assert rounds == [["a"], ["b1", "b2"], ["c"], []]


async def test_a_delay_counts_beside_the_wait_for_others(store, clock):
    await put(store, "a", after("b", "a", delay=60))
    await settle_all(store, DELIVERED)
    assert await claim(store) == []
    clock.advance(60)
    assert names(await claim(store)) == ["b"]


async def test_a_cancelled_letter_that_is_restored_waits_again_or_no_longer(store):
    await put(store, "a", after("b", "a"), after("c", "a"))
    await act(store, "cancel", "b", "c")
    await act(store, "restore", "b")
    assert await settle_all(store, DELIVERED) == ["a"]
    await act(store, "restore", "c")
    assert sorted(await settle_all(store, DELIVERED)) == ["b", "c"]


async def test_a_dead_letter_of_somebody_elses_waits_after_its_replay(store):
    await put(store, "a", after("b", "a", failure=failure()))
    await act(store, "replay", "b")
    assert [await settle_all(store, DELIVERED), await settle_all(store, DELIVERED)] == [["a"], ["b"]]


async def test_many_deliveries_in_one_call_free_everybody_who_waited(store):
    await put(store, *(f"a{n}" for n in range(20)), after("b", *(f"a{n}" for n in range(20))))
    assert len(await settle_all(store, DELIVERED)) == 20
    assert await settle_all(store, DELIVERED) == ["b"]


async def test_a_letter_waits_across_queues(store):
    await put(store, "a", after("b", "a", queue="other"))
    assert await claim(store, queue="other") == []
    await settle_all(store, DELIVERED)
    assert names(await claim(store, queue="other")) == ["b"]


async def test_a_letter_waits_for_a_duplicate_under_the_id_that_is_kept(store):
    await put(store, draft("first", idempotency_key="1"))
    again = draft("first again", idempotency_key="1")
    receipts = await store.put([again, draft("second", after=(again.id,))])
    assert [receipt.duplicate for receipt in receipts] == [True, False]
    assert names(await claim(store)) == ["first"]


async def test_a_draft_that_repeats_an_id_gives_neither_its_wait_nor_its_failure_to_the_first(store):
    await put(store, "a")
    repeated = [draft("b"), after("b", "a"), draft("b", failure=failure())]
    assert [each.duplicate for each in await store.put(repeated)] == [False, True, True]
    assert sorted(names(await claim(store))) == ["a", "b"]


async def test_a_draft_whose_key_is_taken_leaves_its_id_to_the_next_one(store):
    await put(store, draft("a", idempotency_key="k"), "x")
    receipts = await store.put([after("b", "x", idempotency_key="k"), draft("b"), after("c", "x")])
    assert [(each.id, each.duplicate) for each in receipts] == [
        (letter_id("a"), True), (letter_id("b"), False), (letter_id("c"), False),
    ]  # fmt: skip
    assert sorted(names(await claim(store))) == ["a", "b", "x"]


async def test_a_letter_cannot_wait_for_a_later_one_of_the_same_call(store):
    await put(store, draft("a", idempotency_key="k"))
    with pytest.raises(LetterNotFound, match=letter_id("c")):
        await store.put([after("b", "c"), draft("c")])
    with pytest.raises(LetterNotFound, match=letter_id("c")):
        await store.put([after("b", "c"), draft("c", idempotency_key="k")])


async def test_a_letter_may_wait_for_thousands(store):
    many = [f"a{n}" for n in range(12_000)]
    await store.put([draft(name) for name in many])
    async with asyncio.timeout(20):
        await put(store, after("b", *many))
    assert (await get(store, "b")).waits_for == 12_000
