"""
What changes under those who look before they act.

A lock that the test holds keeps the moment in between open, so that each of these happens in exactly one order.
"""

from __future__ import annotations

import asyncio

import asyncpg
import msgspec
import pytest
from tests.stores.held_up import held_up_by
from tests.stores.samples import (
    DELIVERED,
    KIND,
    OPERATOR,
    act,
    claim,
    dead,
    get,
    give_up,
    letter_id,
    names,
    order_lane,
    ordered,
    put,
    settle_all,
)

from redrive.core.priority_shares import SHARES
from redrive.errors import LetterNotFound
from redrive.stores.contract import Claim, QueueSpec, Want

_CLAIM = """
SELECT seq FROM redrive.outbox_exchange(4711, false, false, '{}', '{}', NULL, $1, 60, 'other', $2, true, NULL, NULL)
"""
_LANE = msgspec.json.encode([{"queue": "lane", "kinds": [KIND], "most": 1, "sinces": [None] * 3}]).decode()


async def _claim_by_another(store, connection) -> Claim:
    """Claim the first of the lane in a transaction of the connection's own; it is ours once that commits."""
    [(seq,)] = await connection.fetch(_CLAIM, _LANE, list(SHARES))
    return Claim(await get(store, "b"), seq, 0.0)


async def _replay_while_the_next_is_claimed(store, connection) -> Claim:
    """Let *a* come back in the very moment in which *b*, the next of its key, is claimed; return the claim."""
    await order_lane(store)
    await put(store, ordered("a"), ordered("b"))
    assert await settle_all(store, give_up(), queue="lane") == ["a"]
    async with connection.transaction():
        claimed = await _claim_by_another(store, connection)
        replaying = asyncio.create_task(act(store, "replay", "a"))
        await held_up_by(connection, replaying)
    await replaying
    return msgspec.structs.replace(claimed, letter=await get(store, "b"))


async def test_a_letter_that_comes_back_while_the_next_of_its_key_is_claimed_does_not_run_beside_it(store, connection):
    claimed = await _replay_while_the_next_is_claimed(store, connection)
    assert await claim(store, queue="lane") == []
    assert await store.settle([(claimed, DELIVERED)]) == (True,)
    assert names(await claim(store, queue="lane")) == ["a"]


async def test_a_letter_that_was_claimed_while_an_older_one_came_back_can_itself_be_replayed(store, connection):
    claimed = await _replay_while_the_next_is_claimed(store, connection)
    assert await store.settle([(claimed, give_up())]) == (True,)
    assert await settle_all(store, DELIVERED, queue="lane") == ["a"]
    await act(store, "replay", "b")
    assert await settle_all(store, DELIVERED, queue="lane") == ["b"]


async def test_a_letter_that_is_removed_while_it_is_edited_is_not_found(store, connection):
    await dead(store, "a")
    await act(store, "archive", "a")
    async with connection.transaction():
        await connection.execute("SELECT redrive.outbox_purge_rows(ARRAY(SELECT seq FROM redrive.outbox))")
        editing = asyncio.create_task(store.edit(letter_id("a"), b"{}", "application/json", version=1, **OPERATOR))
        await held_up_by(connection, editing)
    with pytest.raises(LetterNotFound):
        await editing


async def test_a_claim_does_not_wait_for_who_holds_a_lane_in_which_letters_arrived(store, connection):
    await order_lane(store)
    for key in ("held", "free"):
        enqueue = "SELECT redrive.outbox_enqueue($1, '{}', p_queue => 'lane', p_key => $2)"
        await connection.execute(enqueue, KIND, key)
    async with connection.transaction():
        seqs = "SELECT seq FROM redrive.outbox WHERE key = 'held'"
        await connection.execute(f"SELECT redrive.outbox_lock_lanes(ARRAY({seqs}))")
        claiming = asyncio.create_task(claim(store, queue="lane"))
        waiting = asyncio.create_task(held_up_by(connection, claiming))  # ends when it waits, or has an answer
        await asyncio.wait({waiting})
        waiting.exception()
    assert [each.letter.key for each in await claiming] == ["free"]
    assert [each.letter.key for each in await claim(store, queue="lane")] == ["held"]


async def test_a_put_does_not_wait_for_who_holds_the_lane_of_its_key(store, connection):
    await order_lane(store)
    await put(store, ordered("a"))
    async with connection.transaction():
        await connection.execute("SELECT redrive.outbox_lock_lanes(ARRAY(SELECT seq FROM redrive.outbox))")
        putting = asyncio.create_task(put(store, ordered("b")))
        waiting = asyncio.create_task(held_up_by(connection, putting))  # ends when it waits, or has an answer
        await asyncio.wait({waiting})
        waiting.exception()
        assert putting.done()
    assert [await settle_all(store, DELIVERED, queue="lane") for _ in range(2)] == [["a"], ["b"]]


_LANES = """
SELECT k FROM unnest('{a,b,c,d,e,f,g,h}'::text[]) AS k ORDER BY hashtextextended(k, hashtextextended($1, 7))
"""
_IS_FREE = "SELECT pg_try_advisory_xact_lock(hashtextextended($2, hashtextextended($1, 7)))"


async def test_who_looks_what_is_left_and_waits_for_one_lane_keeps_no_later_one_from_others(store, url, connection):
    early, late = "lane-1", "lane-2"
    await store.declare([QueueSpec(name=queue, ordered=True) for queue in (early, late)])
    high, low = (await connection.fetch(_LANES, early))[-1][0], (await connection.fetch(_LANES, late))[0][0]
    for queue, key in ((early, high), (late, low)):
        enqueue = "SELECT redrive.outbox_enqueue($1, '{}', p_queue => $2, p_key => $3)"
        await connection.execute(enqueue, KIND, queue, key)
    other = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            assert await connection.fetchval(_IS_FREE, late, low)
            looking = asyncio.create_task(store.backlog([Want(queue, (KIND,), 1) for queue in (early, late)]))
            await held_up_by(connection, looking)
            assert await other.fetchval(_IS_FREE, early, high)
        assert (await looking).runnable
    finally:
        await other.close()
