"""Letters that fail again elsewhere (`Draft.again`), letters that a person takes, and counters that processes share."""

from __future__ import annotations

import pytest
from tests.stores.samples import (
    DELIVERED,
    KIND,
    LEASE,
    QUEUE,
    WORKER,
    act,
    after,
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

from redrive.core import changes
from redrive.core.letter import Category, Status
from redrive.errors import DraftError
from redrive.stores.contract import books

NEWER = failure("connection reset", error_type="ConnectionError", category=Category.NETWORK, fingerprint="f2")


def again(name: str = "b", **fields):
    told = {
        "failure": NEWER,
        "retry": True,
        "policy": "exponential",
        "delay": 30,
        "idempotency_key": "wf",
        "again": True,
    }
    return draft(name, **{**told, **fields})


async def first(store, **fields) -> None:
    needs(store, "retries")
    await put(store, again("a", failure=failure(), **fields))


async def test_a_letter_that_waits_learns_of_the_newer_failure_and_keeps_its_attempts_and_due_time(store, clock):
    await first(store)
    before = await get(store, "a")
    clock.advance(10)
    [receipt] = await store.put([again()])
    assert (receipt.id, receipt.duplicate) == (letter_id("a"), True)
    kept = await get(store, "a")
    assert (kept.last_error, kept.category, kept.error_type) == ("connection reset", "network", "ConnectionError")
    assert (kept.attempts, kept.due_us, kept.first_failed_us) == (1, before.due_us, before.first_failed_us)
    assert [line.error for line in kept.tries] == ["boom", "connection reset"]
    assert books(await store.tallies())["enqueued"] == 1
    assert await store.get(letter_id("b")) is None


async def test_a_letter_that_waits_is_counted_by_its_newer_failure(store):
    needs(store, "pending_traits")
    await first(store)
    await store.put([again()])
    assert [tally.category for tally in await store.tallies("pending") if tally.count] == ["network"]


async def test_a_letter_that_runs_stays_with_its_claim_and_tells_the_newer_error(store, clock):
    await first(store)
    clock.advance(30)
    [held] = await claim(store)
    await store.put([again()])
    running = await get(store, "a")
    assert (running.status, running.last_error, running.attempts) == (Status.IN_FLIGHT, "connection reset", 2)
    assert await store.settle([(held, retry(5))]) == (True,)
    assert (await get(store, "a")).last_error == "boom"


async def test_a_dead_letter_begins_a_new_cycle_with_the_newer_failure(store, clock):
    await first(store)
    clock.advance(30)
    await settle_all(store, give_up())
    [receipt] = await store.put([again()])
    assert receipt.id == letter_id("a")
    kept = await get(store, "a")
    assert (kept.status, kept.attempts, kept.cycles, kept.due_us) == (
        Status.PENDING,
        1,
        1,
        clock.wall_us() + 30_000_000,
    )
    assert (kept.last_error, kept.failure_history[0].last_error) == ("connection reset", "boom")
    assert kept.failure_history[0].reason == "failed elsewhere"
    clock.advance(30)
    assert [each.attempts for each in await claim(store)] == [2]


async def test_a_dead_letter_whose_newer_failure_is_not_retried_is_dead_again(store, clock):
    await first(store, retry=False)
    await store.put([again(retry=False)])
    kept = await get(store, "a")
    assert (kept.status, kept.cycles, kept.last_error) == (Status.FAILED, 1, "connection reset")
    assert [tally.category for tally in await store.tallies("failed") if tally.count] == ["network"]


@pytest.mark.parametrize("end", ["delivered", "archived"])
async def test_a_letter_that_is_over_gives_its_key_to_a_new_one(store, clock, end):
    await first(store)
    clock.advance(30)
    if end == "delivered":
        await settle_all(store, DELIVERED)
    else:
        await act(store, "cancel", "a")
    [receipt] = await store.put([again()])
    assert (receipt.id, receipt.duplicate) == (letter_id("b"), False)
    assert ((await get(store, "a")).idempotency_key, (await get(store, "a")).status) == (None, Status(end))
    assert ((await get(store, "b")).idempotency_key, (await get(store, "b")).attempts) == ("wf", 1)


async def test_the_same_key_twice_in_one_call_is_one_letter_with_the_newer_error(store):
    needs(store, "retries")
    receipts = await store.put([again("a", failure=failure()), again("b")])
    assert [(receipt.id, receipt.duplicate) for receipt in receipts] == [
        (letter_id("a"), False),
        (letter_id("a"), True),
    ]
    assert (await get(store, "a")).last_error == "connection reset"


@pytest.mark.parametrize("stands", ["pending", "failed", "failed for good"])
async def test_every_field_is_what_core_says(store, clock, stands):
    await first(store, delay=0)
    if stands != "pending":
        await settle_all(store, give_up())
    clock.advance(7)
    before = await get(store, "a")
    newer = again(retry=stands != "failed for good")
    await store.put([newer])
    expected = changes.put_again(before, newer, clock.wall_us())
    kept = await get(store, "a")
    for field in expected.__struct_fields__:
        if field != "token":
            assert getattr(kept, field) == getattr(expected, field), field


def test_again_without_a_key_or_a_failure_is_refused():
    with pytest.raises(DraftError, match="again is True without"):
        draft(again=True)


# ---------------------------------------------------------------------- one letter that a person takes


async def test_a_letter_can_be_taken_before_it_is_due(store, clock):
    await put(store, draft("a", delay=3600), "b")
    held = await store.take(letter_id("a"), lease=LEASE, worker=WORKER)
    assert (names([held]), held.attempts, held.letter.worker) == (["a"], 1, WORKER)
    assert (await get(store, "a")).status is Status.IN_FLIGHT
    assert await store.settle([(held, DELIVERED)]) == (True,)
    assert names(await claim(store)) == ["b"]


async def test_a_letter_that_waited_for_its_retry_is_taken_with_its_past(store):
    await put(store, "a")
    await settle_all(store, retry(3600))
    held = await store.take(letter_id("a"), lease=LEASE, worker=WORKER)
    assert (held.attempts, held.letter.last_error, len(held.letter.tries)) == (2, "boom", 1)
    assert {(tally.queue, tally.kind): tally.count for tally in await store.tallies("in_flight")} == {(QUEUE, KIND): 1}


async def test_what_runs_waits_or_is_over_cannot_be_taken(store):
    await put(store, "a", after("b", "a"))
    [held] = await claim(store)
    assert await store.take(letter_id("a"), lease=LEASE, worker=WORKER) is None
    assert await store.take(letter_id("b"), lease=LEASE, worker=WORKER) is None
    await store.settle([(held, DELIVERED)])
    assert await store.take(letter_id("a"), lease=LEASE, worker=WORKER) is None
    assert await store.take(letter_id("none"), lease=LEASE, worker=WORKER) is None


async def test_a_letter_that_was_taken_is_rescued_when_its_lease_ends(store, clock):
    await put(store, "a")
    await store.take(letter_id("a"), lease=5, worker=WORKER)
    clock.advance(6)
    assert names(await store.expired(10)) == ["a"]


# ---------------------------------------------------------------------- counters


async def test_a_settlement_and_its_counts_are_one(store):
    await put(store, "a", "b")
    held, other = await claim(store, 2)
    assert await store.settle_counted(held, DELIVERED, "workflow", {"succeeded": 1}) is True
    assert (await get(store, "a")).status is Status.DELIVERED
    assert await store.settle_counted(other, give_up(), "workflow", {"failed": 1}) is True
    assert ((await get(store, "b")).status, (await get(store, "b")).last_error) == (Status.FAILED, "boom")
    assert await store.add_up("workflow", {}) == {"succeeded": 1, "failed": 1}


@pytest.mark.parametrize("move", [DELIVERED, retry(5)])
async def test_a_settlement_that_is_refused_counts_nothing(store, move):
    await put(store, "a")
    [held] = await claim(store)
    await store.settle([(held, retry(3600))])
    before = await get(store, "a")
    assert await store.settle_counted(held, move, "workflow", {"succeeded": 1}) is False
    assert (await store.add_up("workflow", {}), await get(store, "a")) == ({}, before)


async def test_counters_add_up_and_names_do_not_mix(store):
    assert await store.add_up("workflow", {}) == {}
    assert await store.add_up("workflow", {"succeeded": 2}) == {"succeeded": 2}
    assert await store.add_up("workflow", {"succeeded": 1, "failed": 4}) == {"succeeded": 3, "failed": 4}
    assert await store.add_up("other", {"failed": 1}) == {"failed": 1}
    assert await store.add_up("workflow", {}) == {"succeeded": 3, "failed": 4}
