"""An idempotency key that is unique in its queue, whatever the kind: `Draft.unique_in`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.stores.samples import DELIVERED, act, claim, draft, find_all, get, letter_id, put, settle_all

from redrive.errors import DraftError, QueueFull
from redrive.stores.contract import QueueSpec, Receipt, Want, books

if TYPE_CHECKING:
    from redrive.core.letter import Draft


def wide(name: str, **fields) -> Draft:
    return draft(name, **{"idempotency_key": "17", "unique_in": "queue", **fields})


async def test_the_same_key_under_another_kind_is_a_duplicate_of_the_first(store):
    await put(store, wide("a", kind="order.paid"))
    assert await store.put([wide("b", kind="order.sent")]) == [Receipt(letter_id("a"), duplicate=True)]
    assert await store.get(letter_id("b")) is None
    assert books(await store.tallies())["enqueued"] == 1


async def test_of_two_in_one_call_the_first_is_kept(store):
    receipts = await store.put([wide("a", kind="x"), wide("b", kind="y"), wide("c", idempotency_key="18")])
    assert receipts == [Receipt(letter_id("a")), Receipt(letter_id("a"), duplicate=True), Receipt(letter_id("c"))]


async def test_other_queues_have_keys_of_their_own(store):
    await put(store, wide("a"), wide("b", queue="other"))
    assert len(await find_all(store)) == 2


async def test_of_many_that_race_exactly_one_is_kept(store):
    answers = await asyncio.gather(*(store.put([wide(f"{n}", kind=f"kind-{n}")]) for n in range(20)))
    receipts = [receipt for (receipt,) in answers]
    assert len({receipt.id for receipt in receipts}) == 1
    assert sum(not receipt.duplicate for receipt in receipts) == 1
    assert len(await find_all(store)) == 1


@pytest.mark.parametrize("first", ["kind", "queue"])
async def test_a_key_per_kind_and_a_key_per_queue_do_not_meet_under_two_kinds(store, first):
    second = {"kind": "queue", "queue": "kind"}[first]
    await put(store, wide("a", kind="x", unique_in=first), wide("b", kind="y", unique_in=second))
    assert len(await find_all(store)) == 2


@pytest.mark.parametrize("first", ["kind", "queue"])
async def test_within_one_kind_a_key_is_unique_whatever_the_drafts_say(store, first):
    second = {"kind": "queue", "queue": "kind"}[first]
    await put(store, wide("a", unique_in=first))
    assert await store.put([wide("b", unique_in=second)]) == [Receipt(letter_id("a"), duplicate=True)]


async def test_a_draft_that_two_letters_stand_in_the_way_of_is_a_duplicate_of_the_one_of_its_kind(store):
    await put(store, wide("a", kind="x", unique_in="kind"), wide("b", kind="y"))
    assert await store.put([wide("c", kind="x")]) == [Receipt(letter_id("a"), duplicate=True)]


async def test_the_letter_says_so_when_it_is_read_found_and_claimed(store):
    await put(store, wide("a"), draft("b"))
    claimed = {each.letter.id: each.letter for each in await claim(store)}
    assert (claimed[letter_id("a")].unique_in, claimed[letter_id("b")].unique_in) == ("queue", "kind")
    assert ((await get(store, "a")).unique_in, (await get(store, "b")).unique_in) == ("queue", "kind")
    assert {letter.unique_in for letter in await find_all(store)} == {"queue", "kind"}


async def test_the_key_stays_taken_after_delivery_and_is_free_after_a_purge(store):
    await put(store, wide("a"))
    await settle_all(store, DELIVERED)
    assert (await store.put([wide("b", kind="other")]))[0].duplicate

    await put(store, wide("c", idempotency_key="18"))
    await act(store, "cancel", "c")
    await act(store, "purge", "c")
    assert await store.put([wide("d", kind="other", idempotency_key="18")]) == [Receipt(letter_id("d"))]


async def test_duplicates_need_no_room(store):
    await store.declare([QueueSpec(name="work", max_size=2)])
    await put(store, wide("a", kind="x"))
    assert (await store.put([wide("b", kind="y")]))[0].duplicate
    receipts = await store.put([wide("c", kind="x", idempotency_key="18"), wide("d", kind="y", idempotency_key="18")])
    assert [receipt.duplicate for receipt in receipts] == [False, True]
    assert (await store.put([wide("e", kind="z")]))[0].duplicate
    with pytest.raises(QueueFull):
        await store.put([wide("f", kind="z", idempotency_key="19")])


async def test_one_that_waits_for_a_duplicate_waits_for_what_is_kept(store):
    await put(store, wide("a", kind="x"))
    await store.put([wide("b", kind="y"), draft("c", after=(letter_id("b"),))])
    assert await claim(store) == []
    claims = await store.claim([Want("work", ("x",), 10)], lease=60, worker="w")
    await store.settle([(each, DELIVERED) for each in claims])
    assert [each.letter.id for each in await claim(store)] == [letter_id("c")]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"unique_in": "store", "idempotency_key": "1"}, "unique_in is 'store' and must be 'kind' or 'queue'"),
        ({"unique_in": None, "idempotency_key": "1"}, "unique_in is None and must be"),
        ({"unique_in": "queue"}, "without an idempotency_key; give the key"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_store_sees_it(fields, said):
    with pytest.raises(DraftError, match=said):
        draft("a", **fields)
