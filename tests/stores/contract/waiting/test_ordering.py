"""Queues that keep order per key: at most one of a key in flight, in order of arrival."""

from __future__ import annotations

from tests.stores.samples import (
    DELIVERED,
    act,
    after,
    claim,
    draft,
    failure,
    give_up,
    letter_id,
    lost,
    names,
    order_lane,
    ordered,
    put,
    release,
    retry,
)

from redrive.core.letter import Priority
from redrive.stores.contract import QueueSpec, Want


async def run(store, move=DELIVERED) -> list[str]:
    """Let whatever may run in the lane come to *move*."""
    claims = await claim(store, queue="lane")
    assert all(await store.settle([(each, move) for each in claims]))
    return names(claims)


async def test_letters_of_one_key_run_one_at_a_time_in_order(store):
    await order_lane(store)
    await put(store, ordered("a"), ordered("b"), ordered("c"))
    assert [await run(store) for _ in range(4)] == [["a"], ["b"], ["c"], []]


async def test_keys_do_not_wait_for_each_other_and_letters_without_a_key_wait_for_nobody(store):
    await order_lane(store)
    await put(store, ordered("a1"), ordered("a2"), ordered("b1", key="b"), draft("x", queue="lane"))
    await put(store, draft("y", queue="lane"))
    assert sorted(names(await claim(store, queue="lane"))) == ["a1", "b1", "x", "y"]


async def test_a_key_of_another_queue_is_another_key(store):
    await order_lane(store)
    await store.declare([QueueSpec(name="lane2", ordered=True)])
    await put(store, ordered("a"), ordered("b", queue="lane2"))
    assert names(await claim(store, queue="lane")) == ["a"]
    assert names(await claim(store, queue="lane2")) == ["b"]


async def test_queues_keep_order_only_when_asked(store):
    await put(store, draft("a", key="k"), draft("b", key="k"))
    assert names(await claim(store)) == ["a", "b"]


async def test_order_holds_across_kinds_priorities_and_due_times(store, clock):
    await order_lane(store)
    await put(store, ordered("a", delay=10, priority=Priority.LOW), ordered("b", priority=Priority.HIGH, kind="other"))
    wants = [Want("lane", ("other", "order.created"), 10)]
    assert await store.claim(wants, lease=60, worker="w") == []
    clock.advance(10)
    assert names(await store.claim(wants, lease=60, worker="w")) == ["a"]


async def test_a_letter_in_backoff_blocks_its_key_and_no_other(store, clock):
    await order_lane(store)
    await put(store, ordered("a1"), ordered("a2"), ordered("b1", key="b"), ordered("b2", key="b"))
    first, second = await claim(store, queue="lane")
    await store.settle([(first, retry(30)), (second, DELIVERED)])
    assert await run(store) == ["b2"]
    clock.advance(30)
    assert [await run(store), await run(store)] == [["a1"], ["a2"]]


async def test_an_interrupted_or_lost_letter_keeps_its_place(store):
    await order_lane(store)
    await put(store, ordered("a"), ordered("b"))
    assert await run(store, release()) == ["a"]
    assert await run(store, lost()) == ["a"]
    assert [await run(store), await run(store)] == [["a"], ["b"]]


async def test_a_dead_or_cancelled_letter_makes_way_for_the_next(store):
    await order_lane(store)
    await put(store, *(ordered(name) for name in "abcd"))
    assert await run(store, give_up()) == ["a"]
    await act(store, "cancel", "b")
    await act(store, "cancel", "d")
    assert [await run(store), await run(store)] == [["c"], []]


async def test_cancelling_a_letter_that_waits_lets_nobody_overtake(store):
    await order_lane(store)
    await put(store, *(ordered(name) for name in "abc"))
    [claimed] = await claim(store, queue="lane")
    await act(store, "cancel", "b")
    assert await claim(store, queue="lane") == []
    await store.settle([(claimed, DELIVERED)])
    assert await run(store) == ["c"]


async def test_a_replayed_letter_waits_for_the_one_that_runs_and_then_goes_first(store):
    await order_lane(store)
    await put(store, *(ordered(name) for name in "abc"))
    assert await run(store, give_up()) == ["a"]
    [running] = await claim(store, queue="lane")
    await act(store, "replay", "a")
    assert await claim(store, queue="lane") == []
    await store.settle([(running, DELIVERED)])
    assert [await run(store), await run(store)] == [["a"], ["c"]]


async def test_a_replay_into_an_empty_lane_runs_at_once(store):
    await order_lane(store)
    await put(store, ordered("a"))
    await run(store, give_up())
    await act(store, "replay", "a")
    assert await run(store) == ["a"]


async def test_a_retry_keeps_its_turn_although_an_older_letter_was_replayed(store):
    await order_lane(store)
    await put(store, ordered("a"), ordered("b"))
    await run(store, give_up())
    [running] = await claim(store, queue="lane")
    await act(store, "replay", "a")
    await store.settle([(running, retry())])
    assert [await run(store), await run(store)] == [["b"], ["a"]]


async def test_cancelling_behind_a_running_letter_lets_no_replayed_one_overtake(store):
    await order_lane(store)
    await put(store, ordered("a"), ordered("b"), ordered("c"))
    await run(store, give_up())
    [running] = await claim(store, queue="lane")
    await act(store, "replay", "a")
    await act(store, "cancel", "c")
    await act(store, "restore", "c")
    assert await claim(store, queue="lane") == []
    await store.settle([(running, DELIVERED)])
    assert [await run(store), await run(store)] == [["a"], ["c"]]


async def test_a_letter_that_ran_beside_others_of_its_key_when_the_queue_began_to_keep_order_can_be_replayed(store):
    await put(store, *(ordered(name) for name in "abc"))
    a, b, c = await claim(store, queue="lane")
    await store.settle([(a, give_up())])
    await order_lane(store)
    await act(store, "replay", "a")
    await store.settle([(c, give_up())])
    await store.settle([(b, DELIVERED)])
    await act(store, "replay", "c")
    assert [await run(store), await run(store), await run(store)] == [["a"], ["c"], []]


async def test_several_letters_of_one_key_replayed_together_run_one_at_a_time(store):
    await order_lane(store)
    await put(store, *(ordered(name) for name in "abc"))
    for _ in range(3):
        await run(store, give_up())
    await act(store, "replay", "c", "a", "b")
    assert [await run(store) for _ in range(4)] == [["a"], ["b"], ["c"], []]


async def test_a_replayed_letter_goes_before_a_younger_one_that_backs_off(store, clock):
    await order_lane(store)
    await put(store, ordered("a"), ordered("b"))
    await run(store, give_up())
    await run(store, retry(30))
    await act(store, "replay", "a")
    assert await run(store) == ["a"]
    clock.advance(30)
    assert await run(store) == ["b"]


async def test_a_dead_letter_of_somebody_elses_takes_its_place_in_the_lane_when_it_is_replayed(store):
    await order_lane(store)
    await put(store, ordered("a", failure=failure()), ordered("b"), ordered("c", failure=failure()))
    [running] = await claim(store, queue="lane")
    await act(store, "replay", "a", "c")
    assert await claim(store, queue="lane") == []
    await store.settle([(running, DELIVERED)])
    assert [await run(store) for _ in range(3)] == [["a"], ["c"], []]


async def test_a_restored_letter_lines_up_again(store):
    await order_lane(store)
    await put(store, ordered("a"), ordered("b"))
    await act(store, "cancel", "a")
    [running] = await claim(store, queue="lane")
    await act(store, "restore", "a")
    assert await claim(store, queue="lane") == []
    await store.settle([(running, DELIVERED)])
    assert await run(store) == ["a"]


async def test_a_restored_dead_letter_does_not_block_its_lane(store):
    await order_lane(store)
    await put(store, ordered("a"), ordered("b"))
    await run(store, give_up())
    await act(store, "archive", "a")
    await act(store, "restore", "a")
    assert await run(store) == ["b"]


async def test_an_exchange_that_delivers_claims_the_next_of_the_key(store):
    await order_lane(store)
    await put(store, ordered("a"), ordered("b"))
    [first] = await claim(store, queue="lane")
    wants = [Want("lane", ("order.created",), 10)]
    exchanged = await store.exchange([(first, DELIVERED)], wants, lease=60, worker="w")
    assert names(exchanged.claims) == ["b"]


async def test_a_letter_that_waits_for_others_holds_back_its_key(store):
    await order_lane(store)
    await put(store, "elsewhere", after("a", "elsewhere", queue="lane", key="customer-1"), ordered("b"))
    assert await run(store) == []
    [needed] = await claim(store)
    await store.settle([(needed, DELIVERED)])
    assert [await run(store), await run(store)] == [["a"], ["b"]]


async def test_a_replayed_letter_that_another_of_its_key_waits_for_can_run(store):
    await order_lane(store)
    await put(store, ordered("a"))
    await run(store, give_up())
    await put(store, after("b", "a", queue="lane", key="customer-1"))
    assert await run(store) == []
    await act(store, "replay", "a")
    assert [await run(store), await run(store)] == [["a"], ["b"]]


async def test_at_most_one_of_a_key_runs_when_what_the_first_waits_for_is_delivered_late(store):
    await order_lane(store)
    await put(store, ordered("old"))
    await run(store, give_up())
    await put(store, "elsewhere", after("a", "elsewhere", queue="lane", key="customer-1"))
    await act(store, "replay", "old")
    running = await claim(store, queue="lane")
    [needed] = await claim(store)
    await store.settle([(needed, DELIVERED)])
    running += await claim(store, queue="lane")
    assert len(running) == 1


async def test_a_queue_that_begins_to_keep_order_lines_up_the_letters_it_has(store):
    await put(store, *(ordered(name) for name in "abc"))
    [running] = await claim(store, 1, queue="lane")
    await order_lane(store)
    assert await claim(store, queue="lane") == []
    await store.settle([(running, DELIVERED)])
    assert [await run(store), await run(store)] == [["b"], ["c"]]


async def test_a_queue_that_no_longer_keeps_order_lets_everybody_go(store):
    await order_lane(store)
    await put(store, *(ordered(name) for name in "abc"))
    await store.declare([QueueSpec(name="lane")])
    assert names(await claim(store, queue="lane")) == ["a", "b", "c"]


async def test_declaring_the_same_again_changes_nothing(store):
    await order_lane(store)
    await put(store, ordered("a"), ordered("b"))
    [running] = await claim(store, queue="lane")
    await order_lane(store)
    assert await claim(store, queue="lane") == []
    await store.settle([(running, give_up(failure()))])
    assert await run(store) == ["b"]


async def test_letters_that_died_before_their_queue_kept_order_are_lined_up_when_replayed(store):
    await put(store, ordered("a", queue="later"), ordered("b", queue="later"))
    for taken in await claim(store, queue="later"):
        await store.settle([(taken, give_up())])
    await store.declare([QueueSpec(name="later", ordered=True)])
    await store.act("replay", [letter_id("a"), letter_id("b")], by="ada", reason="fixed")
    assert names(await claim(store, queue="later")) == ["a"]
