"""Capacity: what a process wants, may start and claims ahead."""

from __future__ import annotations

import pytest
from tests.engine.starting import letter

from redrive.engine.handler import build_handler
from redrive.engine.worker.slots.capacity import Capacity
from redrive.stores.contract import Claim, Want


async def on_loop(order: dict): ...


def in_thread(order: dict): ...


def capacity(*handlers, default: int = 4, prefetch: int = 32, **queues: int) -> Capacity:
    return Capacity(handlers, queues, default=default, prefetch=prefetch)


def claims(count: int) -> list[Claim]:
    return [Claim(letter(), ref, 0.0) for ref in range(count)]


def started(made: Capacity) -> list:
    """Start what may start now; return the slots, in order."""
    found = []
    for queue in made.queues:
        while (slots := queue.next()) is not None:
            slots.ahead.ready.popleft()
            slots.begin(0.0)
            found.append(slots)
    return found


def run(slots, count: int, seconds: float, *, exchange: float = 0.002, begin: float = 100.0) -> None:
    """Let *count* letters run in all slots, each for *seconds*; then learn from it."""
    now = begin
    for _ in range(max(1, count // slots.concurrency)):
        for _ in range(slots.concurrency):
            slots.begin(now)
        now += seconds
        for _ in range(slots.concurrency):
            slots.end(now)
    slots.learn(now, exchange)


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


@pytest.mark.parametrize(("size", "holds"), [(0, 4), (4, 8)])
def test_slots_want_what_they_lack_of_one_letter_for_each_and_those_ahead(size, holds):
    [slots] = capacity(build_handler("a", on_loop)).all
    slots.ahead.size = size
    assert slots.want() == Want("default", ("a",), holds)
    slots.ahead.ready.extend(claims(holds - 1))
    assert slots.want() == Want("default", ("a",), 1)
    slots.ahead.ready.extend(claims(1))
    assert slots.want() is None


def test_a_new_worker_claims_nothing_ahead_until_it_knows_how_long_letters_run():
    [slots] = capacity(build_handler("a", on_loop)).all
    for _ in range(slots.concurrency):
        slots.begin(0.0)
    slots.learn(0.001, 0.002)
    assert slots.want() is None


def test_a_limit_bounds_what_it_wants():
    [slots] = capacity(build_handler("a", on_loop)).all
    assert slots.want(1) == Want("default", ("a",), 1)
    assert slots.want(0) is None


def test_no_more_start_than_the_handler_and_the_queue_allow():
    made = capacity(build_handler("few", on_loop, concurrency=2), build_handler("many", on_loop), default=3)
    for slots in made.all:
        slots.ahead.ready.extend(claims(5))
    kinds = [slots.kinds for slots in started(made)]
    assert len(kinds) == made.running == 3
    assert kinds.count(("few",)) <= 2


def test_slots_that_share_a_queue_take_turns():
    made = capacity(build_handler("few", on_loop, concurrency=2), build_handler("many", on_loop), default=2)
    for slots in made.all:
        slots.ahead.ready.extend(claims(9))
    kinds = []
    for _ in range(6):
        for slots in started(made):
            kinds.append(slots.kinds)
            slots.end(0.0)
    assert kinds[:8].count(("few",)) == kinds[:8].count(("many",)) == 4


def test_the_queues_concurrency_is_what_was_declared():
    made = capacity(build_handler("a", on_loop, queue="mails"), build_handler("b", on_loop), mails=9)
    assert (made.by_kind["a"].concurrency, made.by_kind["b"].concurrency) == (9, 4)


def test_a_handler_cannot_exceed_its_queue():
    [slots] = capacity(build_handler("a", on_loop, concurrency=50), default=3).all
    assert slots.concurrency == 3


def test_it_claims_farther_ahead_the_quicker_letters_run_and_never_beyond_the_prefetch():
    sizes = []
    for seconds in (1.0, 0.02, 0.005, 0.001, 0.00001):
        [slots] = capacity(build_handler("a", on_loop), default=4, prefetch=32).all
        run(slots, 40, seconds)
        sizes.append(slots.ahead.size)
    assert sizes == [0, 6, 13, 32, 32]


def test_it_claims_less_far_ahead_as_soon_as_letters_that_still_run_are_slow():
    [slots] = capacity(build_handler("a", on_loop), default=4, prefetch=32).all
    run(slots, 40, 0.001, begin=100.0)
    assert slots.ahead.size == 32
    for _ in range(4):
        slots.begin(200.0)
    slots.learn(200.1, 0.002)  # none of them has ended
    assert slots.ahead.size == 8
    slots.learn(201.0, 0.002)
    assert slots.ahead.size == 0


def test_one_letter_that_hangs_does_not_keep_the_other_slots_from_claiming_ahead():
    [slots] = capacity(build_handler("a", on_loop), default=5, prefetch=1_000).all
    slots.begin(99.5)
    now = 100.0
    for _ in range(50):
        for _ in range(4):
            slots.begin(now)
        now += 0.001
        for _ in range(4):
            slots.end(now)
        slots.learn(now, 0.002)
    assert 40 <= slots.ahead.size <= 60  # 4 slots, 1 ms: 40 letters from one exchange of 2 ms to the next


def test_after_late_letters_it_claims_none_ahead_until_a_letter_has_ended():
    [slots] = capacity(build_handler("a", on_loop), default=4, prefetch=32).all
    run(slots, 40, 0.001)
    slots.ahead.ready.extend(came := claims(3))
    assert slots.ahead.take_late(lambda claim: claim is not came[2]) == came[:2]
    slots.learn(101.0, 0.002)
    assert (slots.ahead.size, list(slots.ahead.ready)) == (0, came[2:])
    run(slots, 40, 0.001, begin=102.0)
    assert slots.ahead.size > 0


def test_it_asks_for_half_of_what_it_may_hold_at_once():
    [slots] = capacity(build_handler("a", on_loop), default=4, prefetch=32).all
    slots.ahead.size = 32
    assert slots.want() == Want("default", ("a",), 16)


def test_without_prefetch_it_holds_no_more_than_it_runs():
    [slots] = capacity(build_handler("a", on_loop), default=4, prefetch=0).all
    run(slots, 40, 0.00001)
    assert (slots.ahead.size, slots.want()) == (0, Want("default", ("a",), 4))


def test_where_there_was_a_suspect_nothing_is_claimed_ahead():
    made = capacity(build_handler("a", on_loop), default=4, prefetch=32)
    [slots] = made.all
    run(slots, 40, 0.00001)
    made.shrink()
    slots.learn(200.0, 0.002)
    assert slots.ahead.size == 0


def test_every_want_covers_every_kind():
    made = capacity(build_handler("a", on_loop), build_handler("b", in_thread, queue="mails"))
    assert sorted((want.queue, want.kinds) for want in made.every_want()) == [("default", ("a",)), ("mails", ("b",))]
