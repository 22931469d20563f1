"""redrive.testing itself: users' tests stand on it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from importlib.metadata import entry_points

import pytest
from tests.engine.starting import soon

from redrive import Redrive, RetryPolicy, Status, retry
from redrive.stores.sqlite import SqliteStore
from redrive.testing import FakeClock, drive, drive_sync


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
        with pytest.raises(AssertionError, match=r"not idle after 20 rounds: 1 letter is pending \(kinds: rabbit\)"):
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


# ---------------------------------------------------------------------- time limits follow the test's clock


async def hang(order: dict) -> None:
    await asyncio.Event().wait()


async def sleep_long(order: dict) -> None:
    await asyncio.sleep(3_600)


def hang_in_a_thread(order: dict) -> None:
    STUCK.wait(30)


STUCK = threading.Event()


@pytest.mark.parametrize("handler", [hang, sleep_long])
async def test_a_handler_that_hangs_runs_out_of_its_time_at_once(app, handler):
    app.add_handler("order", handler, timeout=60, policy=RetryPolicy.constant(5, max_attempts=4))
    async with drive(app) as test:
        await app.enqueue("order", {})
        real, began = asyncio.get_running_loop().time(), test.clock.monotonic()
        await test.run_until_idle(patience=5)
        [letter] = await test.letters("status:failed attempts:4")
        assert (letter.error_type, letter.last_error) == ("TimeoutError", "timed out after 60 s")
        assert test.clock.monotonic() - began == pytest.approx(4 * 60 + 3 * 5)
        assert asyncio.get_running_loop().time() - real < 30


async def test_a_thread_that_hangs_runs_out_of_its_time_too(app):
    app.add_handler("order", hang_in_a_thread, timeout=86_400, policy=RetryPolicy.NEVER)
    async with drive(app) as test:
        await app.enqueue("order", {})
        await soon(test.run_until_idle())
        STUCK.set()
        [letter] = await test.letters("status:failed")
        assert (letter.last_error, letter.losses) == ("timed out after 86400 s", 0)


async def test_a_handler_that_ends_in_time_is_waited_for(app):
    @app.handler("order", timeout=60)
    async def ship(order: dict):
        await asyncio.sleep(0.05)
        await asyncio.to_thread(threading.Event().wait, 0.05)

    async with drive(app) as test:
        began = test.clock.monotonic()
        await app.enqueue("order", {})
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 1
        assert test.clock.monotonic() == began


async def test_time_that_the_test_lets_pass_counts_for_handlers_that_run(app):
    begun = asyncio.Event()

    @app.handler("order", timeout=10, policy=RetryPolicy.NEVER)
    async def ship(order: dict):
        begun.set()
        await asyncio.Event().wait()

    async with drive(app) as test:
        await app.enqueue("order", {})
        for _ in range(3):
            await test.processor.tick()
        await soon(begun.wait())
        test.clock.advance(9)
        assert test.clock.next_alarm == pytest.approx(1)
        test.clock.advance(1)
        await soon(test.run_until_idle())
        assert len(await test.letters("status:failed")) == 1
        assert test.clock.next_alarm is None


async def test_a_limit_longer_than_a_lease_costs_no_claim(app):
    app.add_handler("order", hang, timeout=1_000, policy=RetryPolicy.constant(1, max_attempts=2))
    async with drive(app) as test:
        await app.enqueue("order", {})
        await soon(test.run_until_idle())
        [letter] = await test.letters("status:failed")
        assert (letter.attempts, letter.losses, letter.why) == (2, 0, "exhausted")


# ---------------------------------------------------------------------- plain functions


def test_plain_test_functions_drive_an_application(app):
    @app.handler("order", policy=RetryPolicy.constant(60, max_attempts=2))
    async def ship(order: dict):
        raise OSError("down")

    store = app.store
    with drive_sync(app) as test:
        receipt = test.enqueue("order", {"n": 1})
        test.tick()
        assert [letter.status for letter in test.letters()] == ["pending"]
        test.run_until_idle()
        letter = test.letter(receipt.id)
        assert (letter.status, letter.attempts) == ("failed", 2)
        assert len(test.enqueue_many(app.draft("order", {}) for _ in range(2))) == 2
        assert test.run(app.desk.show(receipt.id)).id == receipt.id
        assert "redrive.letter.died" in [fact.name for fact in test.facts]
    assert app.store is store


def test_a_plain_test_that_fails_gives_the_store_back(app):
    app.add_handler("order", lambda order: None)
    store = app.store
    with pytest.raises(ZeroDivisionError), drive_sync(app):
        _ = 1 / 0
    assert app.store is store


PLUGIN = """
from redrive import Redrive, RetryPolicy

app = Redrive("sqlite:///never-made.db")

@app.handler("order", timeout=3, policy=RetryPolicy.constant(60, max_attempts=4))
async def ship(order: dict) -> None:
    import asyncio
    await asyncio.Event().wait()

def test_an_order_dies(redrive_drive):
    test = redrive_drive(app)
    receipt = test.enqueue("order", {"n": 17})
    test.run_until_idle()
    assert test.letter(receipt.id).last_error == "timed out after 3 s"
"""


def test_the_fixture_works_without_any_plugin_for_coroutines(tmp_path):
    (tmp_path / "test_shop.py").write_text(PLUGIN)
    given = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "redrive_pytest", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        given, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert [file.name for file in tmp_path.glob("*.db")] == []


def test_pytest_finds_the_fixture_by_itself():
    [found] = [point for point in entry_points(group="pytest11") if point.name == "redrive"]
    assert found.value == "redrive_pytest"
