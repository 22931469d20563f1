from __future__ import annotations

import asyncio

import pytest
from tests.stores.samples import (
    DELIVERED,
    act,
    claim,
    draft,
    failure,
    find_all,
    get,
    letter_id,
    names,
    order_lane,
    ordered,
    put,
    settle_all,
)

from redrive.core.letter import BYTES, Priority, Status
from redrive.errors import LetterNotFound, QueueFull
from redrive.stores.contract import QueueSpec, Receipt, books

EVERY_BYTE = bytes(range(256))


async def test_a_letter_comes_back_byte_for_byte(store):
    sent = draft(
        payload=EVERY_BYTE,
        content_type=BYTES,
        key="k\0ü",
        idempotency_key="order-17",
        priority=Priority.HIGH,
        policy="exponential:max_attempts=8",
        generation=3,
        origin="kafka:orders/3@17",
        handler="ship",
        tenant="acme",
        headers=(("x", b"1"), ("x", b"2"), ("raw", EVERY_BYTE)),
        metadata={"deep": [1, {"er": None}], "text": "\x1b[31m\0"},
    )
    assert await store.put([sent]) == [Receipt(sent.id)]

    [claimed] = await claim(store)
    for kept in (await get(store, "a"), claimed.letter):
        for field in sent.__struct_fields__:
            if field not in (
                "delay",
                "due_us",
                "failure",
                "attempts",
                "retry",
                "again",
                "accepted_us",
                "counters",
                "draw",
            ):
                assert getattr(kept, field) == getattr(sent, field), field


async def test_the_store_adds_what_the_sender_does_not_say(store, clock):
    now = clock.wall_us()
    await put(store, "a")
    letter = await get(store, "a")

    assert (letter.status, letter.attempts, letter.losses, letter.cycles) == (Status.PENDING, 0, 0, 0)
    assert (letter.created_us, letter.updated_us, letter.cycle_us, letter.due_us) == (now, now, now, now)
    assert (letter.payload_version, letter.worker, letter.failure_history) == (1, None, ())
    assert letter.token > 0


async def test_a_letter_that_a_spool_accepted_earlier_was_created_then_and_is_due_now(store, clock):
    now = clock.wall_us()
    await put(store, draft("a", accepted_us=now - 60_000_000), draft("b", accepted_us=now + 60_000_000), draft("c"))
    letters = [await get(store, name) for name in "abc"]

    assert [letter.created_us for letter in letters] == [now - 60_000_000, now, now]
    assert {(letter.updated_us, letter.cycle_us, letter.due_us) for letter in letters} == {(now, now, now)}
    assert [each.letter.created_us for each in await claim(store)] == [letter.created_us for letter in letters]


async def test_a_draft_again_does_not_change_when_the_kept_letter_was_created(store, clock):
    now = clock.wall_us()
    told = {"idempotency_key": "k", "failure": failure(), "again": True}
    await put(store, draft("a", **told))
    clock.advance(60)
    await store.put([draft("b", **told, accepted_us=now - 60_000_000)])
    assert (await get(store, "a")).created_us == now


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
async def test_payloads_of_any_size_are_kept_and_claimed(store, size):
    payload = b"\xff" * size
    await put(store, draft(payload=payload))
    assert (await get(store, "a")).payload == payload
    [claimed] = await claim(store)
    assert claimed.letter.payload == payload


async def test_a_delay_counts_from_the_stores_own_now(store, clock):
    await put(store, draft("a", delay=2.5), draft("b", delay=9, due_us=clock.wall_us() + 1))
    assert (await get(store, "a")).due_us == clock.wall_us() + 2_500_000
    assert (await get(store, "b")).due_us == clock.wall_us() + 1


async def test_putting_nothing_keeps_nothing(store):
    assert await store.put([]) == []
    assert await find_all(store) == []


async def test_later_puts_have_greater_tokens(store):
    await put(store, "a")
    await put(store, "b", "c")
    tokens = [(await get(store, name)).token for name in "abc"]
    assert tokens[0] < tokens[1] == tokens[2]


async def test_the_same_id_again_is_a_duplicate_and_changes_nothing(store):
    await put(store, "a")
    assert await store.put([draft("a", payload=b"other", kind="other")]) == [Receipt(letter_id("a"), duplicate=True)]
    assert (await get(store, "a")).payload == b"a"


async def test_the_same_idempotency_key_is_a_duplicate_of_the_letter_that_is_kept(store):
    await put(store, draft("a", idempotency_key="order-17"))
    receipts = await store.put([draft("b", idempotency_key="order-17"), draft("c", idempotency_key="order-18")])
    assert receipts == [Receipt(letter_id("a"), duplicate=True), Receipt(letter_id("c"))]
    assert await store.get(letter_id("b")) is None


async def test_an_idempotency_key_counts_within_queue_and_kind(store):
    await put(
        store,
        draft("a", idempotency_key="17"),
        draft("b", idempotency_key="17", queue="other"),
        draft("c", idempotency_key="17", kind="other"),
    )
    assert len(await find_all(store)) == 3


async def test_duplicates_within_one_call_are_found_too(store):
    receipts = await store.put(
        [draft("a", idempotency_key="17"), draft("b", idempotency_key="17"), draft("a"), draft("c")]
    )
    assert receipts == [
        Receipt(letter_id("a")),
        Receipt(letter_id("a"), duplicate=True),
        Receipt(letter_id("a"), duplicate=True),
        Receipt(letter_id("c")),
    ]
    assert books(await store.tallies())["enqueued"] == 2


async def test_an_idempotency_key_stays_taken_after_delivery_and_is_free_after_a_purge(store):
    await put(store, draft("a", idempotency_key="17"), draft("b", idempotency_key="18"))
    await act(store, "cancel", "b")
    await settle_all(store, DELIVERED)
    again = [draft("c", idempotency_key="17"), draft("d", idempotency_key="18")]
    assert all(receipt.duplicate for receipt in await store.put(again))

    await act(store, "purge", "b")
    assert [receipt.duplicate for receipt in await store.put(again)] == [True, False]


async def test_a_duplicate_of_a_letter_that_waits_for_another_is_still_a_duplicate(store):
    await put(store, "a", draft("b", after=(letter_id("a"),)))
    assert await store.put([draft("b", after=(letter_id("a"),))]) == [Receipt(letter_id("b"), duplicate=True)]
    await settle_all(store, DELIVERED)
    assert await settle_all(store, DELIVERED) == ["b"]


async def test_a_full_queue_takes_none_of_a_call(store):
    await store.declare([QueueSpec(name="work", max_size=2)])
    await put(store, "a")
    with pytest.raises(QueueFull, match="'work' holds its maximum of 2"):
        await store.put([draft("other", queue="roomy"), draft("b"), draft("c")])
    assert names(await find_all(store)) == ["a"]
    await put(store, "b")


async def test_a_kept_key_is_a_duplicate_though_what_its_letter_waited_for_is_gone(store):
    await put(store, "first", draft("a", idempotency_key="17", after=(letter_id("first"),)))
    await act(store, "cancel", "first", "a")
    await act(store, "purge", "first")
    await act(store, "restore", "a")
    again = [draft("b", idempotency_key="17", after=(letter_id("first"),)), draft("a", after=(letter_id("first"),))]

    assert await store.put(again) == [Receipt(letter_id("a"), duplicate=True)] * 2
    with pytest.raises(LetterNotFound):
        await store.put([draft("c", idempotency_key="18", after=(letter_id("first"),))])


async def test_duplicates_need_no_room(store):
    await store.declare([QueueSpec(name="work", max_size=2)])
    await put(store, draft("a", idempotency_key="17"))
    receipts = await store.put([draft("a"), draft("x", idempotency_key="17"), draft("b"), draft("b")])
    assert [receipt.duplicate for receipt in receipts] == [True, True, False, True]


async def test_letters_in_flight_and_held_ones_take_room_and_finished_ones_give_it_back(store):
    await store.declare([QueueSpec(name="lane", ordered=True, max_size=2)])
    await put(store, ordered("a"), ordered("held"))
    [claimed] = await claim(store, queue="lane")
    with pytest.raises(QueueFull):
        await store.put([ordered("b")])
    await store.settle([(claimed, DELIVERED)])
    await put(store, ordered("b"))


async def test_a_dead_letter_of_somebody_elses_keeps_its_tries_and_when_it_failed(store, clock):
    now = clock.wall_us()
    whole = {"attempts": 3, "first_failed_us": now - 7_000_001, "failed_us": now - 5_000_000}
    late = {"attempts": 1, "failed_us": now - 9_000_000}
    await put(store, draft("a", failure=failure(), **whole), draft("b"), draft("c", failure=failure(), **late))
    letters = [await get(store, name) for name in "abc"]
    assert [letter.attempts for letter in letters] == [3, 0, 1]
    assert [letter.failed_us for letter in letters] == [now - 5_000_000, None, now - 9_000_000]
    assert [letter.first_failed_us for letter in letters] == [now - 7_000_001, None, now - 9_000_000]


async def test_one_dead_letter_of_somebody_elses_alone_keeps_them_too(store, clock):
    then = clock.wall_us() - 5_000_000
    await put(store, draft("a", failure=failure(), attempts=2, failed_us=then))
    letter = await get(store, "a")
    assert (letter.attempts, letter.first_failed_us, letter.failed_us) == (2, then, then)


async def test_a_dead_letter_of_somebody_elses_is_failed_at_once(store, clock):
    await store.declare([QueueSpec(name="work", max_size=0)])
    await put(store, draft("a", failure=failure("theirs", fingerprint="f9")))
    letter = await get(store, "a")

    assert (letter.status, letter.attempts) == (Status.FAILED, 0)
    assert (letter.error_type, letter.last_error, letter.category) == ("ValueError", "theirs", "transient")
    assert (letter.fingerprint, letter.first_failed_us, letter.failed_us) == ("f9", clock.wall_us(), clock.wall_us())
    assert await claim(store) == []
    kept = books(await store.tallies())
    assert (kept["enqueued"], kept["failed"], kept["pending"]) == (1, 1, 0)


async def test_a_dead_letter_of_somebody_elses_does_not_stop_its_lane(store):
    await order_lane(store)
    await put(store, ordered("dead", failure=failure()), ordered("a"))
    assert names(await claim(store, queue="lane")) == ["a"]


async def test_what_the_sender_does_to_its_metadata_later_changes_nothing(store):
    metadata = {"tags": ["new"]}
    await put(store, draft("a", metadata=metadata))
    metadata["tags"].append("changed")
    (await get(store, "a")).metadata["tags"].append("changed too")
    assert (await get(store, "a")).metadata == {"tags": ["new"]}


async def test_many_producers_at_once_lose_nothing(store):
    await asyncio.gather(*(put(store, f"{n}-1", f"{n}-2") for n in range(50)))
    assert len(await find_all(store)) == 100
    assert books(await store.tallies())["enqueued"] == 100
