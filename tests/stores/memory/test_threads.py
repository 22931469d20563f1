from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from tests.stores.samples import DELIVERED, check_books, claim, draft, put

from redrive.stores.clock import SystemStoreClock
from redrive.stores.contract import books
from redrive.stores.memory import MemoryStore


def test_a_memory_store_needs_no_clock_and_says_that_it_is_not_durable():
    assert not MemoryStore().features.durable
    assert not MemoryStore(SystemStoreClock()).features.shared


def test_threads_with_event_loops_of_their_own_share_one_store():
    store = MemoryStore()

    async def work(thread: int) -> list[str]:
        done = []
        for n in range(50):
            await put(store, draft(f"{thread}-{n}"))
            claims = await claim(store, 3)
            assert all(await store.settle([(each, DELIVERED) for each in claims]))
            done += [each.letter.id for each in claims]
        return done

    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda thread: asyncio.run(work(thread)), range(4)))
    done = [letter_id for batch in batches for letter_id in batch]
    assert len(done) == len(set(done))
    asyncio.run(check_books(store))
    assert books(asyncio.run(store.tallies()))["enqueued"] == 200


def test_a_put_on_one_thread_wakes_who_waits_on_another():
    store = MemoryStore()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: asyncio.run(store.wait(60)))
        asyncio.run(put(store, "a"))
        assert waiting.result(timeout=120)
