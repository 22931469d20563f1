"""Capacity: what a process wants, may start and claims ahead."""

from __future__ import annotations

import pytest
from tests.engine.starting import letter

from redrive.engine.handler import build_handler
from redrive.engine.worker.capacity import Capacity
from redrive.stores.contract import Claim, Want


async def on_loop(order: dict): ...


def in_thread(order: dict): ...


def capacity(*handlers, default: int = 4, prefetch: int = 32, **queues: int) -> Capacity:
    return Capacity(handlers, queues, default=default, prefetch=prefetch)


def claims(count: int) -> list[Claim]:
    return [Claim(letter(), ref, 0.0) for ref in range(count)]


def run_round(made: Capacity, slots, count: int) -> list:
    """Let *count* letters come in, start what may start, and adapt."""
    slots.ahead.ready.extend(claims(count))
    started = list(made.startable())
    slots.ahead.adapt(count, slots.running)
    return started


def finish(started: list) -> None:
    for slots, _ in started:
        slots.end()


def test_plain_async_kinds_of_a_queue_share_slots():
    made = capacity(
        build_handler("a", on_loop), build_handler("b", on_loop), build_handler("c", on_loop, queue="mails")
    )
    assert sorted(slots.kinds for slots in made.all) == [("a", "b"), ("c",)]
    assert made.by_kind["a"] is made.by_kind["b"]


def test_a_handler_with_limits_of_its_own_has_slots_of_its_own():
    made = capacity(
        build_handler("plain", on_loop),
        build_handler("few", on_loop, concurrency=2),
        build_handler("dependent", on_loop, breaker="warehouse"),
        build_handler("sync", in_thread),
    )
    assert sorted(slots.kinds for slots in made.all) == [("dependent",), ("few",), ("plain",), ("sync",)]
    assert made.by_kind["few"].concurrency == 2
    assert made.by_kind["dependent"].breaker == "warehouse"


@pytest.mark.parametrize(("prefetch", "holds"), [(0, 4), (32, 8)])
def test_slots_want_what_they_lack_of_one_batch_to_run_and_one_on_its_way(prefetch, holds):
    [slots] = capacity(build_handler("a", on_loop), prefetch=prefetch).all
    assert slots.want() == Want("default", ("a",), 4)
    slots.ahead.ready.extend(claims(holds - 1))
    assert slots.want() == Want("default", ("a",), 1)
    slots.ahead.ready.extend(claims(1))
    assert slots.want() is None


def test_a_limit_bounds_what_it_wants():
    [slots] = capacity(build_handler("a", on_loop)).all
    assert slots.want(1) == Want("default", ("a",), 1)
    assert slots.want(0) is None


def test_no_more_start_than_the_handler_and_the_queue_allow():
    made = capacity(build_handler("few", on_loop, concurrency=2), build_handler("many", on_loop), default=3)
    for slots in made.all:
        slots.ahead.ready.extend(claims(5))
    started = [slots.kinds for slots, _ in made.startable()]
    assert len(started) == made.running == 3
    assert started.count(("few",)) <= 2


def test_the_queues_concurrency_is_what_was_declared():
    made = capacity(build_handler("a", on_loop, queue="mails"), build_handler("b", on_loop), mails=9)
    assert (made.by_kind["a"].concurrency, made.by_kind["b"].concurrency) == (9, 4)


def test_a_handler_cannot_exceed_its_queue():
    [slots] = capacity(build_handler("a", on_loop, concurrency=50), default=3).all
    assert slots.concurrency == 3


def test_it_claims_farther_ahead_while_letters_are_done_at_once_and_never_beyond_the_prefetch():
    made = capacity(build_handler("a", on_loop), default=4, prefetch=32)
    [slots] = made.all
    sizes = []
    for _ in range(6):
        started = run_round(made, slots, slots.concurrency)
        finish(started)
        slots.ahead.adapt(len(started), slots.running)
        sizes.append(slots.ahead.size)
    assert sizes == sorted(sizes)
    assert 2 * slots.ahead.size == 32  # two batches may be held


def test_it_claims_less_far_ahead_when_letters_have_to_wait():
    made = capacity(build_handler("a", on_loop), default=4, prefetch=32)
    [slots] = made.all
    slots.ahead.size = 32
    run_round(made, slots, 32)
    assert slots.ahead.size == 16
    for _ in range(5):
        slots.ahead.adapt(0, slots.running)
    assert slots.ahead.size == slots.concurrency


@pytest.mark.parametrize(("prefetch", "most"), [(500, 8), (0, 4)])
def test_threads_are_not_claimed_far_ahead_for(prefetch, most):
    [slots] = capacity(build_handler("a", in_thread), default=4, prefetch=prefetch).all
    assert slots.ahead.most == most


def test_without_prefetch_it_holds_no_more_than_it_runs():
    made = capacity(build_handler("a", on_loop), default=4, prefetch=0)
    [slots] = made.all
    for _ in range(4):
        finish(run_round(made, slots, 4))
        slots.ahead.adapt(4, slots.running)
    assert slots.ahead.size == 4


def test_every_want_covers_every_kind():
    made = capacity(build_handler("a", on_loop), build_handler("b", in_thread, queue="mails"))
    assert sorted((want.queue, want.kinds) for want in made.every_want()) == [("default", ("a",)), ("mails", ("b",))]
