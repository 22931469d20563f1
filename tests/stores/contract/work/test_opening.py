"""Opening and closing, and what a store says of itself."""

from __future__ import annotations

import asyncio

import pytest
from tests.stores.samples import (
    DELIVERED,
    LEASE,
    WANT,
    WORKER,
    claim,
    dead,
    draft,
    get,
    names,
    order_lane,
    ordered,
    put,
)

from redrive.core.query import parse
from redrive.errors import StoreClosed


async def test_a_closed_store_refuses_and_may_be_closed_twice(closed_store):
    await closed_store.open()
    await closed_store.close()
    await closed_store.close()
    for call in (
        closed_store.put([draft()]),
        closed_store.claim([WANT], lease=LEASE, worker=WORKER),
        closed_store.find(parse("")),
        closed_store.tallies(),
    ):
        with pytest.raises(StoreClosed):
            await call


async def test_a_store_may_be_closed_before_it_was_opened(closed_store):
    await closed_store.close()


async def test_a_store_that_is_opened_again_still_holds_everything(closed_store, clock):
    await closed_store.open()
    await order_lane(closed_store)
    await put(closed_store, ordered("a"), ordered("b"))
    await dead(closed_store, "dead")
    before = await get(closed_store, "dead")
    await closed_store.pause("work", paused=True, by="ada", reason="closing")
    [running] = await claim(closed_store, queue="lane", lease=10)
    await closed_store.close()

    await closed_store.open()
    assert await get(closed_store, "dead") == before
    assert [state.paused for state in await closed_store.queues()] == [False, True]
    assert await claim(closed_store, queue="lane") == []
    clock.advance(11)
    assert names(await closed_store.expired(10)) == ["a"]
    assert await closed_store.settle([(running, DELIVERED)]) == (True,)
    assert names(await claim(closed_store, queue="lane")) == ["b"]
    await closed_store.close()


async def test_tokens_grow_on_after_a_store_is_opened_again(closed_store):
    await closed_store.open()
    await put(closed_store, "a")
    [old] = await claim(closed_store)
    await closed_store.close()
    await closed_store.open()
    await put(closed_store, "b")
    assert (await get(closed_store, "b")).token > old.token
    await closed_store.close()


async def test_what_was_accepted_before_the_close_is_kept(closed_store):
    await closed_store.open()
    puts = asyncio.gather(*(put(closed_store, str(n)) for n in range(20)))
    await puts
    await closed_store.close()
    await closed_store.open()
    assert await closed_store.count(parse("")) == 20
    await closed_store.close()


async def test_a_store_says_whether_it_is_durable(store, request):
    is_memory = "memory" in request.node.callspec.params.values()
    assert store.features.durable is not is_memory
    assert store.features.ordered
