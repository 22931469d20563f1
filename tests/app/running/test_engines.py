"""Where a handler runs, for how long, and how many of its letters at once."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.app.far_away import die, pid_of

from redrive import Redrive, RetryPolicy, Status
from redrive.errors import HandlerError


class Gauge:
    """How many are inside at once, over loops and threads."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    async def __aexit__(self, *_) -> None:
        with self._lock:
            self.now -= 1


async def test_an_async_handler_that_takes_too_long_fails_as_timed_out(app, driven):
    cancelled = asyncio.Event()

    @app.handler("order.created", timeout=0.01, policy=RetryPolicy.NEVER)
    async def ship(order: dict):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with driven(app) as test:
        receipt = await app.enqueue("order.created", {})
        await test.run_until_idle()
        letter = await test.letter(receipt.id)
    assert (letter.status, letter.error_type, letter.attempts) == (Status.FAILED, "TimeoutError", 1)
    assert cancelled.is_set()


async def test_a_thread_that_takes_too_long_fails_as_timed_out_and_others_go_on(app, driven):
    release = threading.Event()

    @app.handler("slow", timeout=0.02, policy=RetryPolicy.NEVER, concurrency=1)
    def slow(order: dict):
        release.wait(120)

    @app.handler("quick")
    def quick(order: dict): ...

    try:
        async with driven(app) as test:
            receipt = await app.enqueue("slow", {})
            await app.enqueue("quick", {})
            await test.run_until_idle()
            assert (await test.letter(receipt.id)).error_type == "TimeoutError"
            assert len(await test.letters("kind:quick status:delivered")) == 1
    finally:
        release.set()


async def test_sync_handlers_run_in_threads_and_async_ones_on_the_loop(app, driven):
    threads = {}

    @app.handler("sync")
    def sync(order: dict):
        threads["sync"] = threading.current_thread()

    @app.handler("async")
    async def on_loop(order: dict):
        threads["async"] = threading.current_thread()

    async with driven(app) as test:
        await app.enqueue("sync", {})
        await app.enqueue("async", {})
        await test.run_until_idle()
    assert threads["async"] is threading.current_thread()
    assert threads["sync"] is not threading.current_thread()


async def test_an_async_handler_may_be_sent_to_a_thread(app, driven):
    threads = []

    @app.handler("order.created", engine="thread")
    async def ship(order: dict):
        await asyncio.sleep(0)
        threads.append(threading.current_thread())

    async with driven(app) as test:
        await app.enqueue("order.created", {})
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 1
    assert threads != [threading.current_thread()]


async def test_a_process_handlers_death_is_the_outcome_of_its_letter_alone(app, driven, tmp_path):
    app.add_handler("pid", pid_of, engine="process", concurrency=1)
    app.add_handler("die", die, engine="process", concurrency=1)
    async with driven(app) as test:
        killer = await app.enqueue("die", {})
        await app.enqueue("pid", {"to": str(tmp_path / "pid")})
        await test.run_until_idle(patience=120)
        letter = await test.letter(killer.id)
        assert len(await test.letters("kind:pid status:delivered losses:0")) == 1
    assert (letter.status, letter.why, letter.losses) == (Status.FAILED, "worker_crashed", 3)
    assert (tmp_path / "pid").read_text()


async def test_a_sync_function_cannot_be_put_on_the_loop(app):
    with pytest.raises(HandlerError, match="block the event loop"):
        app.add_handler("order.created", lambda order: None, engine="async")


async def test_a_letter_goes_to_its_handlers_queue(app, driven):
    app.add_handler("mail", lambda mail: None, queue="mails")
    app.add_handler("order.created", lambda order: None)
    async with driven(app) as test:
        await app.enqueue("mail", {})
        await app.enqueue("order.created", {})
        assert {letter.kind: letter.queue for letter in await test.letters()} == {
            "mail": "mails",
            "order.created": "default",
        }
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 2


@pytest.mark.parametrize("engine", ["async", "thread"])
async def test_a_handler_runs_no_more_letters_at_once_than_its_concurrency(driven, engine):
    app = Redrive("memory://", concurrency=50)
    gauge, all_three = Gauge(), threading.Barrier(3)

    @app.handler("order.created", concurrency=3, engine=engine)
    async def ship(order: dict):
        async with gauge:
            all_three.wait(120) if engine == "thread" else await asyncio.sleep(0)

    async with driven(app) as test:
        await app.enqueue_many([app.draft("order.created", {}) for _ in range(12)])
        await test.run_until_idle(patience=120)
        assert len(await test.letters("status:delivered")) == 12
    assert gauge.most == 3


async def test_a_queue_runs_no_more_letters_at_once_than_its_concurrency_whatever_their_kinds(app, driven):
    app.queue("default", concurrency=3)
    gauge = Gauge()

    async def ship(order: dict):
        async with gauge:
            await asyncio.sleep(0.001)

    app.add_handler("a", ship, concurrency=2)
    app.add_handler("b", ship)
    app.add_handler("c", ship, engine="thread")
    async with driven(app) as test:
        await app.enqueue_many([app.draft(kind, {}) for kind in "abc" * 5])
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 15
    assert gauge.most == 3
