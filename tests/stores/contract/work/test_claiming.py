from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.stores.samples import (
    DELIVERED,
    KIND,
    LEASE,
    QUEUE,
    WANT,
    WORKER,
    act,
    claim,
    dead,
    draft,
    get,
    names,
    order_lane,
    ordered,
    put,
    release,
    retry,
    settle_all,
)

from redrive.core.letter import Priority, Status
from redrive.stores.contract import QueueSpec, Want, WorkerBeat

# What a handler may look at, and what decides about a letter.
NEEDED = (
    "id", "queue", "kind", "payload", "content_type", "key", "idempotency_key", "priority", "due_us", "attempts",
    "losses", "policy", "generation", "origin", "handler", "tenant", "cycles", "cycle_us", "created_us",
    "payload_version", "status", "token", "worker", "headers", "metadata", "after",
)  # fmt: skip
BEAT = WorkerBeat(name=WORKER, kinds=(KIND,), in_flight=1)


async def test_a_claim_counts_an_attempt_raises_the_token_and_names_the_worker(store, clock):
    await put(store, "a")
    before = await get(store, "a")
    clock.advance(7.5)
    [claimed] = await claim(store)
    letter = await get(store, "a")

    assert (letter.status, letter.attempts, letter.worker) == (Status.IN_FLIGHT, 1, WORKER)
    assert letter.token == claimed.token > before.token
    assert (claimed.letter.status, claimed.attempts, claimed.losses) == (Status.IN_FLIGHT, 1, 0)
    assert (claimed.letter.id, claimed.letter.worker) == (letter.id, WORKER)
    assert claimed.age == pytest.approx(7.5)
    assert letter.updated_us == clock.wall_us()


async def test_one_batch_shares_one_token_and_the_next_has_a_greater_one(store):
    await put(store, "a", "b", "c")
    first, second = await claim(store, 2), await claim(store)
    assert len({each.token for each in first}) == 1
    assert second[0].token > first[0].token


async def test_a_claimed_letter_is_not_claimed_again(store):
    await put(store, "a")
    assert len(await claim(store)) == 1
    assert await claim(store) == []


async def test_only_due_letters_are_claimed(store, clock):
    await put(store, draft("now"), draft("later", delay=10))
    assert names(await claim(store)) == ["now"]
    clock.advance(9.999)
    assert await claim(store) == []
    clock.advance(0.001)
    assert names(await claim(store)) == ["later"]


async def test_due_times_follow_the_wall_clock_when_it_jumps(store, clock):
    await put(store, draft("later", delay=3_600))
    clock.jump(3_600)
    assert names(await claim(store)) == ["later"]


async def test_the_oldest_due_goes_first_and_equals_go_in_order_of_arrival(store, clock):
    await put(store, draft("c", delay=3), draft("a", delay=1), draft("d", delay=3), draft("b", delay=2))
    clock.advance(5)
    assert names(await claim(store, 3)) == ["a", "b", "c"]
    assert names(await claim(store)) == ["d"]


async def test_the_oldest_due_goes_first_across_kinds(store, clock):
    await put(store, draft("b", delay=2), draft("a", delay=1, kind="x"), draft("c", delay=3, kind="x"))
    clock.advance(5)
    claims = await store.claim([Want(QUEUE, (KIND, "x"), 10)], lease=LEASE, worker=WORKER)
    assert names(claims) == ["a", "b", "c"]


async def test_a_want_names_queue_kinds_and_limit(store):
    await put(
        store, draft("a", kind="x"), draft("b", kind="y"), draft("c", queue="other", kind="x"), draft("d", kind="x")
    )
    wants = [Want(QUEUE, ("x",), 1), Want("other", ("x",), 5), Want(QUEUE, ("z",), 5), Want("none", ("x",), 5)]
    assert names(await store.claim(wants, lease=LEASE, worker=WORKER)) == ["a", "c"]
    assert await store.claim([Want(QUEUE, ("x",), 0)], lease=LEASE, worker=WORKER) == []
    assert await store.claim([], lease=LEASE, worker=WORKER) == []


async def test_two_wants_of_one_queue_in_one_call_share_no_letter(store):
    await put(store, "a", "b", "c")
    claims = await store.claim([Want(QUEUE, (KIND,), 2), WANT], lease=LEASE, worker=WORKER)
    assert sorted(names(claims)) == ["a", "b", "c"]


async def test_a_generation_gets_its_own_letters_and_those_of_none(store):
    await put(store, draft("old", generation=1), draft("new", generation=2), draft("any"))
    claims = await store.claim([Want(QUEUE, (KIND,), 10, generation=2)], lease=LEASE, worker=WORKER)
    assert names(claims) == ["new", "any"]
    assert names(await claim(store)) == ["old"]


async def test_the_backlog_of_a_generation_knows_nothing_of_others(store):
    await put(store, draft("old", generation=1))
    mine = Want(QUEUE, (KIND,), 1, generation=2)
    assert not (await store.backlog([mine])).runnable
    await put(store, draft("any"))
    assert (await store.backlog([mine])).runnable


async def test_many_claimers_at_once_share_no_letter(store):
    await put(store, *(str(n) for n in range(40)))
    batches = await asyncio.gather(*(claim(store, 7) for _ in range(8)))
    claimed = [name for batch in batches for name in names(batch)]
    assert sorted(claimed, key=int) == [str(n) for n in range(40)]


# ---------------------------------------------------------------------- priorities


async def _put_some_of_each_priority(store, count: int) -> None:
    for priority in (Priority.LOW, Priority.MEDIUM, Priority.HIGH):
        await put(store, *(draft(f"{priority}-{n}", priority=priority) for n in range(count)))


async def test_low_priority_gets_a_tenth_of_the_turns_and_never_nothing(store):
    await _put_some_of_each_priority(store, 20)
    claims = await claim(store, 20)
    assert Counter(each.letter.priority for each in claims) == {Priority.HIGH: 12, Priority.MEDIUM: 6, Priority.LOW: 2}


async def test_the_shares_hold_when_letters_are_claimed_one_by_one(store):
    await _put_some_of_each_priority(store, 10)
    claims = [each for _ in range(10) for each in await claim(store, 1)]
    assert Counter(each.letter.priority for each in claims) == {Priority.HIGH: 6, Priority.MEDIUM: 3, Priority.LOW: 1}


async def test_low_priority_alone_gets_every_turn(store):
    await put(store, *(draft(str(n), priority=Priority.LOW) for n in range(15)))
    assert len(await claim(store, 15)) == 15


# ---------------------------------------------------------------------- exchange


async def test_an_exchange_settles_and_claims(store):
    await put(store, "a", "b", "c")
    first = await claim(store, 2)
    exchanged = await store.exchange([(first[0], DELIVERED), (first[1], retry(60))], [WANT], lease=LEASE, worker="w2")

    assert exchanged.accepted == (True, True)
    assert names(exchanged.claims) == ["c"]
    assert exchanged.claims[0].letter.worker == "w2"
    assert exchanged.claims[0].token > first[0].token


async def test_an_exchange_may_claim_what_it_just_released(store):
    await put(store, "a")
    [old] = await claim(store)
    exchanged = await store.exchange([(old, release())], [WANT], lease=LEASE, worker=WORKER)
    [new] = exchanged.claims
    assert names([new]) == ["a"]
    assert new.token > old.token
    assert await store.settle([(old, DELIVERED)]) == (False,)
    assert await store.settle([(new, DELIVERED)]) == (True,)


async def test_a_stale_settlement_does_not_keep_an_exchange_from_claiming(store):
    await put(store, "a", "b")
    [old] = await claim(store, 1)
    await store.settle([(old, DELIVERED)])
    exchanged = await store.exchange([(old, retry())], [WANT], lease=LEASE, worker=WORKER)
    assert exchanged.accepted == (False,)
    assert names(exchanged.claims) == ["b"]


# ---------------------------------------------------------------------- what is left


async def test_the_backlog_tells_what_can_run_what_runs_and_when_the_next_is_due(store, clock):
    assert await store.backlog([WANT]) == (await store.backlog([]))
    await put(store, draft("a"), draft("b", delay=30), draft("other", kind="other"))
    await claim(store)
    left = await store.backlog([WANT])
    assert (left.runnable, left.in_flight, left.next_due) == (True, 1, pytest.approx(30))

    clock.advance(40)
    assert (await store.backlog([WANT])).next_due == 0
    await claim(store)
    left = await store.backlog([WANT])
    assert (left.runnable, left.in_flight, left.next_due) == (False, 2, None)


async def test_letters_that_wait_for_others_or_in_paused_queues_are_not_runnable(store):
    await order_lane(store)
    await put(store, ordered("a"), ordered("b"))
    want = Want("lane", (KIND,), 10)
    assert (await store.backlog([want])).runnable
    await claim(store, queue="lane")
    left = await store.backlog([want])
    assert (left.runnable, left.in_flight, left.next_due) == (False, 1, None)

    await put(store, "c")
    await store.pause(QUEUE, paused=True, by="ada", reason="")
    assert not (await store.backlog([WANT])).runnable


@pytest.mark.parametrize("what", ["put", "act", "resume"])
async def test_a_wait_ends_early_when_letters_may_have_become_due(store, what):
    await dead(store, "dead")
    await store.pause("other", paused=True, by="ada", reason="")
    while await store.wait(0.05):
        pass
    waiting = asyncio.create_task(store.wait(60))
    await asyncio.sleep(0)
    match what:
        case "put":
            await put(store, "a")
        case "act":
            await act(store, "replay", "dead")
        case "resume":
            await store.pause("other", paused=False, by="ada", reason="")
    async with asyncio.timeout(60):
        assert await waiting


async def test_a_put_between_a_claim_and_the_wait_is_not_missed(store):
    while await store.wait(0.05):
        pass
    await put(store, "a")
    async with asyncio.timeout(60):
        assert await store.wait(60)


async def test_a_wait_ends_by_itself(store):
    while await store.wait(0.05):
        pass
    assert not await store.wait(0.05)


async def test_a_declared_limit_on_letters_in_flight_holds_over_all_workers(store):
    await store.declare([QueueSpec(name=QUEUE, max_in_flight=3)])
    await put(store, *"abcde")
    first = await claim(store, 2)
    assert len(await store.claim([WANT], lease=LEASE, worker="other")) == 1
    assert await claim(store) == []
    exchanged = await store.exchange([(first[0], DELIVERED)], [WANT], lease=LEASE, worker=WORKER)
    assert len(exchanged.claims) == 1
    await store.settle([(first[1], retry(60))])
    assert len(await settle_all(store, DELIVERED)) == 1


async def test_letters_with_more_to_them_are_claimed_whole_beside_plain_ones(store, clock):
    await put(store, "tried", "lost")
    assert await settle_all(store, retry()) == ["tried", "lost"]
    more = {"content_type": "text/plain", "tenant": "t", "policy": "none", "metadata": {"a": 1}, "generation": 4}
    await put(store, "plain", draft("large", payload=b"x" * 9_000), draft("named", idempotency_key="i", key="k"))
    await put(store, draft("more", **more), draft("late", delay=5.0), draft("high", priority=Priority.HIGH))
    clock.advance(10.0)
    claims = await claim(store)
    assert len(claims) == 8
    for claimed in claims:
        kept = await store.get(claimed.letter.id)
        assert [getattr(claimed.letter, name) for name in NEEDED] == [getattr(kept, name) for name in NEEDED]
