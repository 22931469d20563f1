"""Why a pending letter does not run: every store knows the same reasons."""

from __future__ import annotations

import pytest
from tests.stores.samples import (
    DELIVERED,
    KIND,
    LEASE,
    QUEUE,
    act,
    after,
    claim,
    draft,
    get,
    give_up,
    letter_id,
    order_lane,
    ordered,
    put,
    settle_all,
)

from redrive.core.breaker import BreakerRules
from redrive.stores.contract import QueueSpec, WorkerBeat
from redrive.stores.waiting import holds_of, left_waiting

RULES = BreakerRules(failures=2, open_for=30)


async def alive(store, *, kind: str = KIND, queue: str = QUEUE, breaker: str = "") -> None:
    """Let a worker show that it lives and takes letters."""
    beat = WorkerBeat(name="w", kinds=("a.b", kind), queues=("default", queue), breakers=("", breaker))
    await store.extend(beat, [], lease=LEASE)


async def why(store, name: str) -> list[str]:
    return [hold.text for hold in await holds_of(store, await get(store, name))]


async def test_a_letter_that_only_waits_for_a_free_worker_is_held_by_nothing(store):
    await alive(store)
    await put(store, "a")
    assert await why(store, "a") == []


async def test_a_letter_whose_kind_nobody_takes_says_so(store, clock):
    await put(store, "a")
    assert await why(store, "a") == ["no live worker takes order.created from queue work"]
    await alive(store)
    assert await why(store, "a") == []
    clock.advance(LEASE + 1)
    assert await why(store, "a") == ["no live worker takes order.created from queue work"]


async def test_a_worker_that_takes_the_kind_from_another_queue_does_not_help(store):
    await alive(store, queue="elsewhere")
    await put(store, "a")
    assert await why(store, "a") == ["no live worker takes order.created from queue work"]


async def test_a_paused_queue_names_who_paused_it_and_why(store):
    await alive(store)
    await put(store, "a")
    await store.pause(QUEUE, paused=True, by="ana", reason="incident 4711")
    assert await why(store, "a") == ["queue work is paused by ana: incident 4711"]
    await store.pause(QUEUE, paused=False, by="ana", reason="")
    assert await why(store, "a") == []


@pytest.mark.parametrize(("delay", "told"), [(3_540, "59 min"), (7, "7 s"), (7_200, "2 h"), (259_200, "3 days")])
async def test_a_delayed_letter_says_when_it_is_due(store, delay, told):
    await alive(store)
    await put(store, draft("a", delay=delay))
    assert await why(store, "a") == [f"due in {told}"]


async def test_a_letter_behind_a_breaker_names_it_and_its_next_probe(store, clock):
    await alive(store, breaker="payments")
    await put(store, "a")
    assert await why(store, "a") == []
    await store.report("payments", RULES, successes=0, failures=2)
    await store.report("mail", RULES, successes=0, failures=2)
    clock.advance(23)
    [hold] = await holds_of(store, await get(store, "a"))
    assert (hold.cause, hold.text) == ("breaker", "breaker payments is open, next probe in 7 s")
    assert hold.seconds == pytest.approx(7)
    clock.advance(8)
    assert await why(store, "a") == ["breaker payments is half open: a few letters try it before all others"]


async def test_a_letter_behind_an_earlier_one_of_its_key_names_it(store):
    await order_lane(store)
    await alive(store, queue="lane")
    await put(store, ordered("a"), ordered("b"), ordered("c", key="other"))
    await claim(store, queue="lane")
    assert await why(store, "b") == [f"waits for the letter of its key that goes first: {letter_id('a')}"]
    assert await why(store, "c") == []


async def test_a_letter_after_others_names_those_that_are_not_delivered(store):
    await alive(store)
    await put(store, "a", "b", after("c", "a", "b"))
    first, second = await claim(store)
    await store.settle([(first, DELIVERED), (second, give_up())])
    assert await why(store, "c") == [f"waits for 1 other letter (after): {letter_id('b')} (failed)"]


async def test_a_letter_after_one_that_was_purged_says_that_it_is_no_longer_kept(store):
    await alive(store)
    await put(store, "a", after("b", "a"))
    await settle_all(store, give_up())
    await act(store, "archive", "a")
    await act(store, "cancel", "b")
    await act(store, "purge", "a")
    await act(store, "restore", "b")
    assert await why(store, "b") == ["waits for 1 other letter (after): one that is no longer kept"]


async def test_a_letter_after_many_names_five_and_counts_the_rest(store):
    await alive(store)
    many = [f"before-{n}" for n in range(8)]
    await put(store, *many, after("z", *many))
    [hold] = await holds_of(store, await get(store, "z"))
    assert hold.text.startswith("waits for 8 other letters (after): ")
    assert hold.text.endswith("(pending), 3 more")
    assert sum(letter_id(name) in hold.text for name in many) == 5


async def test_a_queue_at_its_limits_names_them(store):
    await store.declare([QueueSpec(name=QUEUE, max_in_flight=1, rate=5)])
    await alive(store)
    await put(store, "a", "b")
    await claim(store)
    assert await why(store, "b") == [
        "queue work runs at most 1 at once, and 1 run",
        "queue work begins at most 5 a second",
    ]


async def test_a_letter_held_twice_names_both(store):
    await put(store, draft("a", delay=60))
    assert await why(store, "a") == ["no live worker takes order.created from queue work", "due in 60 s"]


async def test_a_letter_that_does_not_wait_is_held_by_nothing(store):
    await put(store, "a")
    await claim(store)
    assert await why(store, "a") == []
    assert await store.standing("no such id") is None
    assert await store.standing(letter_id("unknown")) is None


async def test_what_is_left_is_told_by_queue_and_kind(store):
    await alive(store)
    await put(store, draft("a", kind="typo.kind"), draft("b", kind="typo.kind"), draft("c", delay=60))
    assert [left.text for left in await left_waiting(store)] == [
        "1 letter of order.created in queue work: not due yet, or behind other letters",
        "2 letters of typo.kind in queue work: no live worker takes typo.kind from queue work",
    ]
