"""A worker stops: what runs is finished or given back, what has not begun is given back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading

import pytest
from tests.app.waiting import count, until
from tests.engine.starting import PATIENCE, soon

from redrive import Redrive, RetryPolicy
from redrive.core.facts import Abandoned, WorkerStarted, WorkerStopped
from redrive.testing import drive


async def test_stop_finishes_what_runs_and_gives_back_what_has_not_begun(folder):
    app = Redrive(f"sqlite:///{folder}/redrive.db", concurrency=1, prefetch=50)
    began, gate = asyncio.Event(), asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        if order["n"] == 30:
            began.set()
            await gate.wait()

    async with app:
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(60)])
        task = asyncio.ensure_future(app.run())
        await soon(began.wait())
        app.stop()
        await asyncio.sleep(0)
        assert not task.done()
        gate.set()
        await soon(task)
        assert await count(app, "status:delivered") == 31
        assert await count(app, "status:pending attempts:0 losses:0") == 29
        assert await count(app, "status:in_flight") == 0


async def test_a_second_stop_stops_now_and_gives_the_attempts_back(app):
    began, ended = asyncio.Event(), asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await app.enqueue("order.created", {})
    task = asyncio.ensure_future(app.run())
    await soon(began.wait())
    app.stop()
    app.stop()
    await soon(task)
    assert ended.is_set()
    assert await count(app, "status:pending attempts:0 losses:0") == 1


async def test_a_handler_that_outlasts_the_drain_is_stopped_and_its_attempt_given_back(folder):
    app = Redrive(f"sqlite:///{folder}/redrive.db", drain_seconds=0.05)
    began = asyncio.Event()
    release = threading.Event()

    @app.handler("async")
    async def on_loop(order: dict):
        began.set()
        await asyncio.Event().wait()

    @app.handler("thread")
    def in_thread(order: dict):
        release.wait(PATIENCE)

    async with app:
        await app.enqueue("async", {})
        await app.enqueue("thread", {})
        task = asyncio.ensure_future(app.run())
        await soon(began.wait())
        app.stop()
        await soon(task)
        release.set()
        assert await count(app, "status:pending attempts:0 losses:0") == 2


async def test_a_worker_tells_when_it_begins_and_ends(app):
    facts = []
    app.listen(facts.append)
    app.add_handler("order.created", lambda order: None)
    assert await soon(app.run(until_idle=True)) is True
    started = [fact for fact in facts if isinstance(fact, WorkerStarted)]
    stopped = [fact for fact in facts if isinstance(fact, WorkerStopped)]
    assert [fact.worker for fact in started] == [fact.worker for fact in stopped]
    assert started[0].kinds == ("order.created",)
    assert stopped[0].why == "nothing left to do"


async def test_a_worker_that_ends_when_idle_tells_what_it_leaves(app):
    facts = []
    app.listen(facts.append)

    @app.handler("order.created", policy=RetryPolicy.NEVER)
    async def ship(order: dict):
        raise OSError("down")

    first = await app.enqueue("order.created", {})
    await app.enqueue("order.created", {}, after=[first.id])
    await app.enqueue("nobody.knows", {})
    assert await soon(app.run(until_idle=True)) is True
    [stopped] = [fact for fact in facts if isinstance(fact, WorkerStopped)]
    assert stopped.why == "nothing left that it can do"
    assert stopped.left == (
        "1 letter of nobody.knows in queue default: no live worker takes nobody.knows from queue default",
        "1 letter of order.created in queue default: not due yet, or behind other letters",
    )


async def test_a_worker_that_was_stopped_does_not_say_that_nothing_is_left(app):
    facts = []
    app.listen(facts.append)
    app.add_handler("order.created", lambda order: app.stop())
    await app.enqueue_many([app.draft("order.created", {}), app.draft("order.created", {}, delay=3_600)])
    assert await soon(app.run(until_idle=True)) is False
    assert [fact.why for fact in facts if isinstance(fact, WorkerStopped)] == ["stopped"]


async def test_stop_ends_every_run_of_an_application(app):
    began = asyncio.Semaphore(0)

    @app.handler("order.created")
    async def ship(order: dict):
        began.release()

    facts = []
    app.listen(facts.append)
    tasks = [asyncio.ensure_future(app.run()) for _ in range(3)]
    await until(lambda: len([fact for fact in facts if isinstance(fact, WorkerStarted)]) == 3)
    app.stop()
    await soon(asyncio.gather(*tasks))
    assert not app._running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_every_run_of_every_application(app, number):
    began, gate = asyncio.Semaphore(0), asyncio.Event()
    other = Redrive("memory://")

    async def ship(order: dict):
        began.release()
        await gate.wait()

    for each in (app, other):
        each.add_handler("order.created", ship)
        await each.enqueue("order.created", {})
    tasks = [asyncio.ensure_future(each.run()) for each in (app, app, other)]
    for _ in range(2):
        await soon(began.acquire())
    await until(lambda: len(app._running) == 2)
    os.kill(os.getpid(), number)
    await asyncio.sleep(0)
    gate.set()  # one signal is one stop: what runs is finished
    await soon(asyncio.gather(*tasks))
    assert [await count(each, "status:delivered") for each in (app, other)] == [1, 1]


async def test_a_run_that_ends_leaves_the_signals_to_the_others(app):
    app.add_handler("order.created", lambda order: None)
    task = asyncio.ensure_future(app.run())
    await until(lambda: app._running)
    assert await soon(app.run(until_idle=True)) is True
    os.kill(os.getpid(), signal.SIGTERM)
    await soon(task)


async def test_a_handler_that_swallows_its_cancellation_is_told_of_and_not_waited_for():
    app, release = Redrive("memory://", drain_seconds=0.01), asyncio.Event()
    facts, began = [], asyncio.Event()
    app.listen(facts.append)

    @app.handler("order.created")
    async def swallow(order: dict):
        began.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    await app.enqueue("order.created", {})
    task = asyncio.ensure_future(app.run())
    await soon(began.wait())
    app.stop()
    await soon(task)
    [told] = [fact for fact in facts if isinstance(fact, Abandoned)]
    assert told.handler.endswith("swallow")
    assert await count(app, "status:pending attempts:0") == 1
    release.set()


async def test_what_was_asked_for_before_a_stop_is_given_back_and_not_begun(driven_app):
    app, test, began = driven_app
    await app.enqueue("order.created", {"n": 1})
    await test.processor.tick()  # starts the first, and asks for more before that
    await app.enqueue("order.created", {"n": 2})
    test.worker.stop()
    await test.worker.finish()
    assert began == [1]
    assert len(await test.letters("status:pending attempts:0")) == 1


@pytest.fixture
async def driven_app():
    app, began = Redrive("memory://"), []

    @app.handler("order.created")
    async def ship(order: dict):
        began.append(order["n"])

    async with drive(app) as test:
        yield app, test, began
