"""What queues allow: pause, rate, and the settings that everybody shares."""

from __future__ import annotations

from random import Random

import pytest
from tests.stores.samples import DELIVERED, LEASE, QUEUE, WANT, WORKER, claim, draft, names, put, settle_all

from redrive.core import rate
from redrive.stores.contract import QueueSpec, QueueState, Want


async def pause(store, queue: str = QUEUE, *, paused: bool = True) -> None:
    await store.pause(queue, paused=paused, by="ada", reason="deploying")


async def test_a_paused_queue_gives_no_letters_until_it_is_resumed(store):
    await put(store, "a", draft("b", queue="other"))
    await pause(store)
    wants = [WANT, Want("other", WANT.kinds, 10)]
    assert names(await store.claim(wants, lease=LEASE, worker=WORKER)) == ["b"]
    await pause(store, paused=False)
    assert names(await claim(store)) == ["a"]


async def test_a_paused_queue_still_takes_letters_and_settlements(store):
    await put(store, "a")
    [running] = await claim(store)
    await pause(store)
    await put(store, "b")
    exchanged = await store.exchange([(running, DELIVERED)], [WANT], lease=LEASE, worker=WORKER)
    assert (exchanged.accepted, exchanged.claims) == ((True,), [])


async def test_a_queues_pause_says_who_and_why_and_forgets_it_when_resumed(store):
    await pause(store)
    spec = QueueSpec(name=QUEUE)
    assert await store.queues() == [QueueState(spec=spec, paused=True, paused_by="ada", reason="deploying")]
    await pause(store, paused=False)
    assert await store.queues() == [QueueState(spec=spec)]


async def test_pausing_and_resuming_are_audited(store):
    await pause(store)
    await pause(store, paused=False)
    resumed, paused = await store.audit()
    assert (paused.verb, paused.target, paused.by, paused.reason) == ("pause", QUEUE, "ada", "deploying")
    assert (resumed.verb, resumed.target) == ("resume", QUEUE)


async def test_queues_that_were_declared_or_have_letters_are_listed_by_name(store):
    specs = [QueueSpec(name="c", ordered=True, max_size=9, rate=1.5, max_in_flight=2), QueueSpec(name="a")]
    await store.declare(specs)
    await put(store, draft(queue="b"))
    assert [state.spec for state in await store.queues()] == [specs[1], QueueSpec(name="b"), specs[0]]


async def test_declaring_a_queue_again_takes_its_new_settings_and_leaves_its_pause(store):
    await store.declare([QueueSpec(name=QUEUE, max_size=1)])
    await pause(store)
    await store.declare([QueueSpec(name=QUEUE, max_size=3)])
    [state] = await store.queues()
    assert (state.spec.max_size, state.paused, state.reason) == (3, True, "deploying")
    await put(store, *"abc")


async def test_looking_for_letters_of_a_queue_does_not_make_it_one(store):
    await claim(store, queue="nowhere")
    await store.backlog([Want("nowhere", ("x",), 1)])
    assert await store.queues() == []


async def test_a_rate_lets_a_second_worth_begin_at_once_and_then_as_many_a_second(store, clock):
    await store.declare([QueueSpec(name=QUEUE, rate=4)])
    await put(store, *(str(n) for n in range(20)))
    assert len(await claim(store)) == 4
    assert await claim(store) == []
    clock.advance(0.25)
    assert len(await claim(store)) == 1
    clock.advance(0.6)
    assert len(await claim(store)) == 2
    clock.advance(0.2)
    assert len(await claim(store)) == 1
    clock.advance(3_600)
    assert len(await claim(store)) == 4


@pytest.mark.parametrize("per_second", [0.5, 1.0, 3.0, 7.25])
async def test_a_rate_lets_as_many_begin_as_the_rule_says(store, clock, per_second):
    chance = Random(f"rate {per_second}")
    await store.declare([QueueSpec(name=QUEUE, rate=per_second)])
    await put(store, *(str(n) for n in range(200)))
    bucket = rate.full(per_second, clock.lease_ms() / 1e3)
    for _ in range(40):
        clock.advance(chance.choice([0, 0.125, 0.25, 0.875, 3.5]))
        bucket, limit = rate.refilled(bucket, per_second, clock.lease_ms() / 1e3), chance.randint(1, 5)
        begun = len(await claim(store, limit))
        assert begun == min(limit, rate.room(bucket))
        bucket = rate.taken(bucket, begun)


async def test_a_rate_holds_over_all_wants_and_workers(store):
    await store.declare([QueueSpec(name=QUEUE, rate=3)])
    await put(store, *(draft(str(n), kind=str(n % 2)) for n in range(10)))
    wants = [Want(QUEUE, ("0",), 2), Want(QUEUE, ("1",), 10)]
    assert len(await store.claim(wants, lease=LEASE, worker="w1")) == 3
    assert await store.claim(wants, lease=LEASE, worker="w2") == []


@pytest.mark.parametrize("step", [0.1, 0.5, 1.0])
async def test_a_rate_below_one_still_lets_letters_begin(store, clock, step):
    await store.declare([QueueSpec(name=QUEUE, rate=0.5)])
    await put(store, *"abcd")
    begun = len(await settle_all(store, DELIVERED))
    for _ in range(round(4 / step)):
        clock.advance(step)
        begun += len(await settle_all(store, DELIVERED))
    assert begun == 3


async def test_claiming_nothing_costs_no_allowance(store):
    await store.declare([QueueSpec(name=QUEUE, rate=2)])
    for _ in range(5):
        assert await claim(store) == []
    await put(store, *"abc")
    assert len(await claim(store)) == 2


async def test_another_rate_lets_a_second_worth_begin_at_once_and_the_same_one_nothing_more(store):
    await store.declare([QueueSpec(name=QUEUE)])
    await put(store, *(f"n{n}" for n in range(20)))
    for per_second, begun in ((5, 5), (5, 0), (3, 3), (3, 0), (8, 8)):
        await store.declare([QueueSpec(name=QUEUE, rate=per_second)])
        assert len(await claim(store)) == begun


async def test_a_rate_may_be_lifted(store):
    await store.declare([QueueSpec(name=QUEUE, rate=1)])
    await put(store, *"abc")
    assert len(await claim(store)) == 1
    await store.declare([QueueSpec(name=QUEUE)])
    assert len(await claim(store)) == 2


async def test_a_clock_that_jumps_back_does_not_stop_a_rated_queue(store, clock):
    await store.declare([QueueSpec(name=QUEUE, rate=1)])
    await put(store, *"ab")
    assert len(await claim(store)) == 1
    clock.jump(-3_600)
    clock.advance(2)
    clock.jump(3_600)
    assert len(await claim(store)) == 1


async def test_a_clock_that_is_set_back_does_not_stop_a_rated_queue_until_it_has_caught_up(store, clock):
    await store.declare([QueueSpec(name=QUEUE, rate=1)])
    await put(store, "a")
    assert len(await claim(store)) == 1
    clock.jump(-3_600)
    await put(store, "b")
    assert len(await claim(store)) <= 1
    clock.advance(2)
    await put(store, "c")
    assert len(await claim(store)) == 1
