"""Letters of many callers that one transaction takes in: keys stay unique, limited queues limited."""

from __future__ import annotations

import asyncio

import pytest
from tests.stores.samples import draft

from redrive.errors import QueueFull
from redrive.stores.contract import QueueSpec, books
from redrive.stores.sqlite import SqliteStore


@pytest.fixture
async def store(tmp_path):
    made = SqliteStore(tmp_path / "store.db")
    await made.open()
    yield made
    await made.close()


async def test_of_letters_with_one_key_that_arrive_together_one_is_kept_and_all_are_told_which(store):
    drafts = [draft(str(n), idempotency_key=f"k{n % 3}") for n in range(200)]
    receipts = [receipt for [receipt] in await asyncio.gather(*(store.put([each]) for each in drafts))]
    assert sum(not receipt.duplicate for receipt in receipts) == 3
    for key in range(3):
        assert len({receipt.id for receipt in receipts[key::3]}) == 1
    found = books(await store.tallies())
    assert (found["enqueued"], found["pending"]) == (3, 3)


async def test_keys_that_are_unique_in_their_queue_are_so_over_kinds(store):
    drafts = [draft(str(n), kind=f"kind{n}", idempotency_key="k", unique_in="queue") for n in range(100)]
    receipts = await asyncio.gather(*(store.put([each]) for each in drafts))
    assert len({receipt.id for [receipt] in receipts}) == 1
    assert books(await store.tallies())["enqueued"] == 1


async def test_a_limited_queue_takes_no_letter_too_many(store):
    await store.declare([QueueSpec(name="work", max_size=70)])
    answers = await asyncio.gather(*(store.put([draft(str(n))]) for n in range(200)), return_exceptions=True)
    assert sum(isinstance(answer, QueueFull) for answer in answers) == 130
    assert books(await store.tallies())["enqueued"] == 70


async def test_duplicates_need_no_room(store):
    await store.declare([QueueSpec(name="work", max_size=2)])
    await store.put([draft("a", idempotency_key="k")])
    drafts = [draft(str(n), idempotency_key="k") for n in range(20)] + [draft("b")]
    answers = await asyncio.gather(*(store.put([each]) for each in drafts))
    assert [answer[0].duplicate for answer in answers] == [True] * 20 + [False]
