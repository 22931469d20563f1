"""redrive.testing itself: users' tests stand on it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.engine.starting import soon

from redrive import Redrive, RetryPolicy, Status, retry
from redrive.stores.sqlite import SqliteStore
from redrive.testing import FakeClock, drive


@pytest.fixture
def app():
    return Redrive("memory://")


async def test_retries_of_days_take_no_time(app):
    @app.handler("order.created", policy=RetryPolicy.constant(86_400, max_attempts=30))
    async def ship(order: dict):
        raise OSError("down")

    async with drive(app) as test:
        await app.enqueue("order.created", {}, delay=3_600)
        start = test.clock.monotonic()
        await soon(test.run_until_idle())
        assert len(await test.letters("status:failed attempts:30")) == 1
        assert test.clock.monotonic() - start == 3_600 + 29 * 86_400


async def test_tick_runs_what_is_due_and_the_clock_stands_still(app):
    ran = []

    @app.handler("step")
    async def step(number: int):
        ran.append(number)
        if number < 3:
            await app.enqueue("step", number + 1)

    async with drive(app) as test:
        await app.enqueue("step", 1)
        await app.enqueue("step", 9, delay=60)
        before = test.clock.wall_us()
        await test.tick()
        assert (ran, test.clock.wall_us()) == ([1, 2, 3], before)
        test.clock.advance(60)
        await test.tick()
        assert ran[-1] == 9


async def test_handlers_that_really_wait_are_waited_for(app):
    @app.handler("async")
    async def on_loop(order: dict):
        await asyncio.sleep(0.01)

    @app.handler("thread")
    def in_thread(order: dict):
        threading.Event().wait(0.01)

    async with drive(app) as test:
        await app.enqueue("async", {})
        await app.enqueue("thread", {})
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 2


async def test_a_handler_that_hangs_is_named(app):
    @app.handler("order.created")
    async def ship(order: dict):
        await asyncio.Event().wait()

    async with drive(app) as test:
        await app.enqueue("order.created", {})
        with pytest.raises(AssertionError, match=r"handlers of order\.created still run after 0\.05 real seconds"):
            await test.run_until_idle(patience=0.05)


async def test_a_letter_that_breeds_for_ever_is_an_error(app):
    @app.handler("rabbit")
    async def breed(order: dict):
        await app.enqueue("rabbit", {})

    async with drive(app) as test:
        await app.enqueue("rabbit", {})
        with pytest.raises(AssertionError, match="50 rounds"):
            await test.run_until_idle(rounds=50)


async def test_a_letter_that_comes_back_for_ever_is_an_error_that_says_what_is_left(app):
    @app.handler("rabbit")
    async def breed(order: dict):
        await app.enqueue("rabbit", {}, delay=60)

    async with drive(app) as test:
        await app.enqueue("rabbit", {})
        with pytest.raises(AssertionError, match=r"not idle after 20 rounds: 1 letters are pending \(kinds: rabbit\)"):
            await test.run_until_idle(rounds=20)


async def test_idle_is_not_kept_from_by_letters_nobody_here_can_run(app):
    app.add_handler("order.created", lambda order: None, queue="paused")
    async with drive(app) as test:
        await app.enqueue("nobody.knows", {})
        await app.enqueue("order.created", {})
        await app.desk.pause("paused")
        await soon(test.run_until_idle())
        assert len(await test.letters("status:pending")) == 2


async def test_a_failing_letter_can_be_looked_at(app):
    @app.handler("order.created", policy=RetryPolicy.NEVER)
    async def ship(order: dict):
        raise OSError("down")

    async with drive(app) as test:
        receipt = await app.enqueue("order.created", {"n": 1})
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(120)])
        await test.run_until_idle()
        assert (await test.letter(receipt.id)).last_error == "down"
        assert len(await test.letters("status:failed")) == 121
        assert await test.letters("status:delivered") == []
        with pytest.raises(AssertionError, match="no letter"):
            await test.letter("01890000-0000-7000-8000-000000000001")


async def test_the_application_gets_its_own_store_and_clock_back(app):
    app.add_handler("order.created", lambda order: None)
    own = await app.enqueue("order.created", {"n": "own"})
    store, clock = app.store, app.clock
    async with drive(app) as test:
        await app.enqueue("order.created", {"n": "test"})
        assert app.store is not store
        assert [letter.payload for letter in await test.letters()] == [b'{"n":"test"}']
    assert (app.store, app.clock) == (store, clock)
    assert [letter.id for letter in (await app.desk.ls()).letters] == [own.id]
    assert (await app.enqueue("order.created", {})).id


async def test_it_is_given_back_when_the_test_fails_too(app):
    app.add_handler("order.created", lambda order: None)
    store = app.store
    with pytest.raises(ZeroDivisionError):
        async with drive(app) as test:
            _ = 1 / 0
    assert app.store is store
    await app.enqueue("order.created", {})
    assert test.facts == []


async def test_each_drive_begins_empty(app):
    app.add_handler("order.created", lambda order: None)
    for _ in range(2):
        async with drive(app) as test:
            await app.enqueue("order.created", {}, idempotency_key="same")
            await test.run_until_idle()
            assert len(await test.letters("status:delivered")) == 1


async def test_declared_queues_hold_in_a_test(app):
    app.queue("default", ordered=True)
    app.add_handler("order.created", lambda order: None)
    async with drive(app) as test:
        [state] = await test.store.queues()
        assert (state.spec.name, state.spec.ordered) == ("default", True)


async def test_another_store_on_the_same_clock_may_be_given(app, tmp_path):
    clock = FakeClock()
    app.add_handler("order.created", lambda order: None)
    async with drive(app, clock=clock, store=SqliteStore(tmp_path / "redrive.db", clock=clock)) as test:
        receipt = await app.enqueue("order.created", {}, delay=86_400)
        await test.run_until_idle()
        assert (await test.letter(receipt.id)).status is Status.DELIVERED


async def test_plain_code_may_be_tested_too(app):
    app.add_handler("order.created", lambda order: None)
    async with drive(app) as test:
        app.sync.enqueue("order.created", {})
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 1


def test_loaded_dice_come_first_and_then_always_the_middle():
    clock = FakeClock()
    clock.draws = [0.1, 0.9]
    assert [clock.draw() for _ in range(4)] == [0.1, 0.9, 0.5, 0.5]


async def test_sleeping_lets_time_pass_at_once_and_others_have_their_turn():
    clock, others = FakeClock(), []
    start = clock.monotonic(), clock.wall_us()
    asyncio.get_running_loop().call_soon(others.append, 1)
    await clock.sleep(60)
    clock.block(30)
    assert (clock.monotonic() - start[0], clock.wall_us() - start[1]) == (90, 90_000_000)
    assert others == [1]


def test_time_does_not_go_back_but_the_wall_clock_may_jump():
    clock = FakeClock()
    start = clock.monotonic()
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
    clock.jump(-3_600)
    assert clock.monotonic() == start


async def test_the_fake_clock_serves_retry_as_well():
    clock, tries = FakeClock(), []
    start = clock.monotonic()

    @retry(RetryPolicy.constant(60, max_attempts=3), clock=clock)
    async def call():
        tries.append(clock.monotonic() - start)
        if len(tries) < 3:
            raise OSError("down")

    await call()
    assert tries == [0, 60, 120]
