"""Letters that another system tried first and that wait here for their retry; what pending letters are counted by."""

from __future__ import annotations

import pytest
from tests.stores.samples import (
    KIND,
    QUEUE,
    claim,
    draft,
    failure,
    get,
    give_up,
    letter_id,
    lost,
    names,
    needs,
    ordered,
    put,
    retry,
    settle_all,
)

from redrive.core.letter import Category, Status
from redrive.core.query import parse
from redrive.errors import DraftError, QueueFull
from redrive.stores.contract import QueueSpec, books


def to_retry(name: str = "a", **fields):
    told = {"failure": failure(category=Category.NETWORK), "retry": True, "policy": "exponential", **fields}
    return draft(name, **told)


async def pending(store) -> dict[tuple[str, str], int]:
    """Return the counts of pending letters by category and policy."""
    found = await store.tallies("pending")
    assert {(tally.queue, tally.kind) for tally in found} <= {(QUEUE, KIND)}
    return {(tally.category, tally.policy): tally.count for tally in found if tally.count}


async def test_it_waits_until_it_is_due_and_its_first_try_here_is_its_second(store, clock):
    needs(store, "retries")
    await put(store, to_retry(delay=30))
    assert await claim(store) == []
    clock.advance(30)
    [held] = await claim(store)
    assert (held.attempts, held.letter.why, held.letter.error_type) == (2, "failed elsewhere", "ValueError")
    assert [(line.attempt, line.why) for line in held.letter.tries] == [(1, "failed elsewhere")]


async def test_it_is_no_dead_letter_and_belongs_to_no_group(store):
    needs(store, "retries")
    await put(store, to_retry(), "b")
    kept = books(await store.tallies())
    assert (kept["enqueued"], kept["pending"], kept["failed"]) == (2, 2, 0)
    assert await store.groups(parse("")) == []
    assert await store.oldest_failed() is None


async def test_when_it_dies_here_it_remembers_when_it_failed_first(store, clock):
    needs(store, "retries")
    await put(store, to_retry(first_failed_us=1_000_000))
    await settle_all(store, give_up())
    letter = await get(store, "a")
    assert (letter.status, letter.first_failed_us, letter.failed_us) == (Status.FAILED, 1_000_000, clock.wall_us())
    assert [line.attempt for line in letter.tries] == [1, 2]


async def test_it_counts_against_the_size_of_its_queue(store):
    needs(store, "retries")
    await store.declare([QueueSpec(name=QUEUE, max_size=1)])
    await put(store, to_retry("a"))
    with pytest.raises(QueueFull):
        await store.put([to_retry("b")])


async def test_it_takes_its_place_in_the_order_of_its_key(store):
    needs(store, "retries")
    await store.declare([QueueSpec(name="lane", ordered=True)])
    await put(store, ordered("a", failure=failure(), retry=True), ordered("b"))
    assert names(await claim(store, queue="lane")) == ["a"]
    assert (await get(store, "b")).waits_for == 1


async def test_a_duplicate_of_it_changes_nothing(store):
    needs(store, "retries")
    await put(store, "a")
    [receipt] = await store.put([to_retry("a")])
    assert (receipt.id, receipt.duplicate) == (letter_id("a"), True)
    assert (await get(store, "a")).attempts == 0


def test_a_retry_without_a_failure_is_refused():
    with pytest.raises(DraftError, match="retry is True without a failure"):
        draft(retry=True)


# ---------------------------------------------------------------------- what pending letters are counted by


async def test_a_letter_that_waits_for_its_retry_is_counted_by_its_failure_and_a_fresh_one_by_neither(store):
    needs(store, "pending_traits")
    await put(store, *"abc")
    claims = {names([each])[0]: each for each in await claim(store)}
    network = retry(what=failure(category=Category.NETWORK))
    await store.settle([(claims["a"], network), (claims["b"], retry())])
    await put(store, "d")
    assert await pending(store) == {("", ""): 1, ("network", "exponential"): 1, ("transient", "exponential"): 1}
    assert len(await claim(store)) == 3
    assert await pending(store) == {}


async def test_a_letter_that_failed_elsewhere_is_counted_by_that(store):
    needs(store, "retries")
    needs(store, "pending_traits")
    await put(store, to_retry("a"), to_retry("b", policy=None))
    assert await pending(store) == {("network", "exponential"): 1, ("network", ""): 1}


async def test_a_lost_letter_keeps_the_category_of_its_last_failure(store):
    needs(store, "pending_traits")
    await put(store, "a")
    await settle_all(store, retry())
    await settle_all(store, lost())
    assert await pending(store) == {("transient", "exponential"): 1}


async def test_cancelling_restoring_and_replaying_count_right(store):
    needs(store, "pending_traits")
    await put(store, "a", "b")
    await settle_all(store, retry())
    for verb, found in (("cancel", {}), ("restore", {("transient", "exponential"): 2})):
        await store.act(verb, [letter_id("a"), letter_id("b")], by="ada", reason="")
        assert await pending(store) == found
    await settle_all(store, give_up())
    await store.act("replay", [letter_id("a")], by="ada", reason="")
    assert await pending(store) == {("", ""): 1}
