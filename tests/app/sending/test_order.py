"""Who runs when: priorities, order per key, and letters that wait for others."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.engine.starting import soon

from redrive import Redrive, RetryPolicy, Status


@pytest.fixture
def serial():
    """An application that runs one letter at a time and claims none ahead."""
    return Redrive("memory://", concurrency=1, prefetch=0)


# ---------------------------------------------------------------------- priorities


@pytest.mark.parametrize("prefetch", [0, 500])
async def test_low_letters_get_a_tenth_of_the_turns_and_never_nothing(driven, prefetch):
    app = Redrive("memory://", concurrency=1, prefetch=prefetch)
    ran = []

    @app.handler("order.created")
    async def ship(order: dict):
        ran.append(order["priority"])

    async with driven(app) as test:
        words = [word for word in ("low", "medium", "high") for _ in range(40)]
        await app.enqueue_many([app.draft("order.created", {"priority": word}, priority=word) for word in words])
        await test.run_until_idle()
    shares = Counter(ran[:40])
    assert shares["low"] == 4
    assert shares["high"] > shares["medium"] > shares["low"]
    assert Counter(ran) == {"low": 40, "medium": 40, "high": 40}


async def test_low_letters_have_all_turns_when_nobody_else_waits(serial, driven):
    ran = []

    @serial.handler("order.created")
    async def ship(order: dict):
        ran.append(order["n"])

    async with driven(serial) as test:
        for n in range(10):
            await serial.enqueue("order.created", {"n": n}, priority="low")
        await test.run_until_idle()
    assert ran == list(range(10))


# ---------------------------------------------------------------------- order per key


@pytest.mark.parametrize("engine", ["async", "thread"])
async def test_letters_of_a_key_run_one_at_a_time_and_in_order(app, driven, engine):
    app.queue("default", ordered=True, concurrency=8)
    ran: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    running = Counter()
    together = []

    @app.handler("order.created", engine=engine)
    async def ship(order: dict):
        key = order["key"]
        running[key] += 1
        assert running[key] == 1
        together.append(sum(running.values()))
        await asyncio.sleep(0)
        running[key] -= 1
        ran[key].append(order["n"])

    async with driven(app) as test:
        drafts = [app.draft("order.created", {"key": key, "n": n}, key=key) for n in range(10) for key in "abc"]
        await app.enqueue_many(drafts)
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 30
    assert ran == {key: list(range(10)) for key in "abc"}
    assert max(together) > 1 or engine == "thread"  # keys do not wait for each other


async def test_a_key_in_backoff_blocks_only_itself(app, driven, clock):
    app.queue("default", ordered=True)
    ran = []

    @app.handler("order.created", policy=RetryPolicy.constant(60))
    async def ship(order: dict):
        ran.append((order["key"], order["n"]))
        if order == {"key": "a", "n": 0} and ran.count(("a", 0)) < 3:
            raise OSError("down")

    async with driven(app) as test:
        for n in range(2):
            for key in "ab":
                await app.enqueue("order.created", {"key": key, "n": n}, key=key)
        await test.tick()
        assert sorted(ran) == [("a", 0), ("b", 0), ("b", 1)]
        clock.advance(60)
        await test.tick()
        assert ("a", 1) not in ran
        clock.advance(60)
        await test.tick()
        assert ran[-2:] == [("a", 0), ("a", 1)]


async def test_a_key_goes_on_after_one_of_its_letters_died(app, driven):
    app.queue("default", ordered=True)
    ran = []

    @app.handler("order.created", policy=RetryPolicy.NEVER)
    async def ship(order: dict):
        ran.append(order["n"])
        if order["n"] == 0:
            raise OSError("down")

    async with driven(app) as test:
        for n in range(3):
            await app.enqueue("order.created", {"n": n}, key="a")
        await test.run_until_idle()
        assert len(await test.letters("status:failed")) == 1
    assert ran == [0, 1, 2]


async def test_letters_without_a_key_are_not_held_up_by_an_ordered_queue(app, driven):
    app.queue("default", ordered=True)
    gate, running = asyncio.Event(), []

    @app.handler("order.created")
    async def ship(order: dict):
        running.append(order["n"])
        if len(running) == 3:
            gate.set()
        await soon(gate.wait())

    async with driven(app) as test:
        for n in range(3):
            await app.enqueue("order.created", {"n": n})
        await test.run_until_idle()
    assert sorted(running) == [0, 1, 2]


async def test_without_order_letters_of_a_key_run_side_by_side(app, driven):
    gate, running = asyncio.Event(), []

    @app.handler("order.created")
    async def ship(order: dict):
        running.append(order["n"])
        if len(running) == 2:
            gate.set()
        await soon(gate.wait())

    async with driven(app) as test:
        for n in range(2):
            await app.enqueue("order.created", {"n": n}, key="a")
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 2


# ---------------------------------------------------------------------- letters that wait for others


async def test_a_letter_runs_once_all_it_waits_for_are_delivered(app, driven):
    ran = []

    @app.handler("step")
    async def step(name: str):
        ran.append(name)

    async with driven(app) as test:
        a = await app.enqueue("step", "a", delay=60)
        b = await app.enqueue("step", "b", delay=120)
        await app.enqueue("step", "c", after=[a.id, b.id])
        await test.run_until_idle()
    assert ran == ["a", "b", "c"]


async def test_a_letter_waits_while_its_dependency_is_failed_and_runs_after_the_replay(app, driven):
    ran, broken = [], [True]

    @app.handler("step", policy=RetryPolicy.NEVER)
    async def step(name: str):
        ran.append(name)
        if name == "a" and broken:
            raise OSError("down")

    async with driven(app) as test:
        a = await app.enqueue("step", "a")
        b = await app.enqueue("step", "b", after=[a.id])
        await test.run_until_idle()
        waiting = await test.letter(b.id)
        assert (waiting.status, waiting.attempts) == (Status.PENDING, 0)
        broken.clear()
        await app.desk.replay(a.id, reason="fixed")
        await test.run_until_idle()
        assert (await test.letter(b.id)).status is Status.DELIVERED
    assert ran == ["a", "a", "b"]


async def test_a_letter_after_one_that_is_delivered_already_runs_at_once(app, driven):
    app.add_handler("step", lambda name: None)
    async with driven(app) as test:
        a = await app.enqueue("step", "a")
        await test.run_until_idle()
        b = await app.enqueue("step", "b", after=[a.id])
        await test.tick()
        assert (await test.letter(b.id)).status is Status.DELIVERED


async def test_a_chain_put_in_one_call_runs_in_order(app, driven):
    ran = []

    @app.handler("step")
    async def step(name: str):
        ran.append(name)

    async with driven(app) as test:
        drafts = [app.draft("step", "0")]
        for n in range(1, 5):
            drafts.append(app.draft("step", str(n), after=[drafts[-1].id]))
        await app.enqueue_many(drafts)
        await test.run_until_idle()
    assert ran == ["0", "1", "2", "3", "4"]


async def test_a_letter_shows_how_many_others_it_waits_for(app, in_memory):
    app.add_handler("step", lambda name: None)
    async with in_memory(app) as test:
        a = await app.enqueue("step", "a", delay=60)
        b = await app.enqueue("step", "b", after=[a.id])
        assert (await test.letter(b.id)).waits_for == 1
