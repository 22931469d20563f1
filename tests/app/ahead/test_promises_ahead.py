"""Rates, order per key and priorities hold for letters that were claimed ahead."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from tests.app.ahead.rounds import orders, ready, ticks, turns
from tests.engine.starting import soon

from redrive import Redrive


async def test_a_rate_counts_what_was_claimed_ahead_also_if_it_is_given_back(few, slow_from, driven):
    few.queue("default", rate=14)
    async with driven(few) as test:
        await orders(few, 60)
        await ticks(test, 12)
        assert (len(slow_from.began), ready(test)) == (8, 6)  # a second's worth
        test.clock.advance(0.06)
        await ticks(test, 4)
        assert ready(test) == 0  # given back
        slow_from.gate.set()
        await turns()
        await ticks(test, 12)
        assert len(slow_from.began) <= 8 + 1  # what 0.06 s earn, and what was claimed counts as begun
        test.clock.advance(1)
        await ticks(test, 12)
        assert len(slow_from.began) <= 8 + 1 + 15
        for _ in range(8):
            test.clock.advance(1)
            await ticks(test, 40)
        assert sorted(slow_from.began) == list(range(60))


async def test_letters_of_one_key_run_in_order_and_one_at_a_time(driven):
    app = Redrive("memory://", concurrency=4)
    app.queue("default", ordered=True)
    ran: dict[int, list[int]] = defaultdict(list)
    running: set[int] = set()

    @app.handler("order.created")
    async def ship(order: dict):
        key = order["n"] % 3
        assert key not in running
        running.add(key)
        await asyncio.sleep(0)
        running.discard(key)
        ran[key].append(order["n"])

    async with driven(app) as test:
        await app.enqueue_many([app.draft("order.created", {"n": n}, key=f"k{n % 3}") for n in range(90)])
        await test.run_until_idle()
        assert len(await test.letters("status:delivered attempts:1")) == 90
    assert [*map(ran.get, range(3))] == [list(range(key, 90, 3)) for key in range(3)]


async def test_order_per_key_holds_for_what_was_given_back(driven):
    app, gate, ran = Redrive("memory://", concurrency=2), asyncio.Event(), []
    app.queue("default", ordered=True)

    @app.handler("order.created")
    async def ship(order: dict):
        if order["n"] >= 10:
            await soon(gate.wait())
        ran.append(order["n"])

    async with driven(app) as test:
        drafts = [app.draft("order.created", {"n": n}, key=f"k{n % 5}") for n in range(40)]
        await app.enqueue_many(drafts)
        await ticks(test, 12)
        test.clock.advance(0.06)
        await ticks(test, 4)
        assert ready(test) == 0
        gate.set()
        await test.run_until_idle()
    assert [[n for n in ran if n % 5 == key] for key in range(5)] == [list(range(key, 40, 5)) for key in range(5)]


async def test_an_urgent_letter_overtakes_those_that_were_claimed_ahead_of_a_slow_one(few, driven):
    gate, ran = asyncio.Semaphore(0), []

    @few.handler("order.created")
    async def ship(order: dict):
        ran.append(order["n"])
        if order["n"] >= 6:
            await soon(gate.acquire())

    async with driven(few) as test:
        await orders(few, 20, priority="low")
        await ticks(test, 8)
        assert ready(test) > 4
        await few.enqueue("order.created", {"n": 99}, priority="high")
        test.clock.advance(0.06)
        await ticks(test, 4)
        gate.release()
        await turns()
        await ticks(test, 4)
        gate.release()
        await turns()
        await ticks(test, 4)
        assert 99 in ran[8:11]  # of ten letters six are high
        for _ in range(40):
            gate.release()
        await test.run_until_idle()
        assert len(await test.letters("status:delivered attempts:1")) == 21


async def test_no_more_letters_are_claimed_ahead_of_an_urgent_one_than_the_slots_use_in_a_moment(few, driven):
    ran = []

    @few.handler("order.created")
    async def ship(order: dict):
        ran.append(order["n"])
        test.clock.advance(0.01)

    async with driven(few) as test:
        await orders(few, 100, priority="low")
        while len(ran) < 20:
            await ticks(test, 1)
        await few.enqueue("order.created", {"n": 999}, priority="high")
        await test.run_until_idle()
    assert ran.index(999) < 60
