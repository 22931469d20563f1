"""A worker by itself, on the real clock: idle, wake-ups, stopping, signals, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from tests.app.waiting import until
from tests.engine.starting import PATIENCE, soon

from redrive import Redrive, RetryPolicy, Status
from redrive.core.facts import Abandoned, WorkerStarted, WorkerStopped
from redrive.core.moves import Move
from redrive.errors import HandlerError
from redrive.stores.contract import Want
from redrive.stores.memory import MemoryStore
from redrive.stores.sqlite import SqliteStore
from redrive.testing import drive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["memory", "sqlite"])
async def app(request, folder) -> AsyncIterator[Redrive]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{folder}/redrive.db"
    async with Redrive(url, poll_seconds=0.05) as app:
        yield app


async def count(app: Redrive, query: str) -> int:
    return len((await app.desk.ls(query, limit=500)).letters)


# ---------------------------------------------------------------------- until idle


async def test_until_idle_ends_when_nothing_is_left(app):
    ran = []

    @app.handler("order.created")
    async def ship(order: dict):
        ran.append(order["n"])

    await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(200)])
    await soon(app.run(until_idle=True))
    assert sorted(ran) == list(range(200))
    assert await count(app, "status:delivered") == 200


async def test_until_idle_waits_for_letters_due_later_and_for_retries(app):
    ran = []

    @app.handler("order.created", policy=RetryPolicy.constant(0.03, max_attempts=3))
    async def ship(order: dict):
        ran.append(order["n"])
        if order["n"] == 1:
            raise OSError("down")

    await app.enqueue("order.created", {"n": 1})
    await app.enqueue("order.created", {"n": 2}, delay=0.1)
    await soon(app.run(until_idle=True))
    assert sorted(ran) == [1, 1, 1, 2]


async def test_until_idle_waits_for_letters_that_another_worker_has(app):
    @app.handler("order.created")
    async def ship(order: dict): ...

    await app.enqueue("order.created", {"n": 1})
    [claim] = await app.store.claim([Want("default", ("order.created",), 1)], lease=60, worker="another")
    running = asyncio.ensure_future(app.run(until_idle=True))
    await asyncio.wait([running], timeout=0.1)
    assert not running.done()
    await app.store.settle([(claim, Move(Status.DELIVERED, "succeeded"))])
    await soon(running)


async def test_until_idle_does_not_wait_for_what_nobody_here_can_do(app):
    @app.handler("order.created", policy=RetryPolicy.NEVER)
    async def ship(order: dict):
        raise OSError("down")

    first = await app.enqueue("order.created", {})
    await app.enqueue("order.created", {}, after=[first.id])
    await app.enqueue("nobody.knows", {})
    await app.enqueue("order.created", {}, queue="elsewhere")
    await soon(app.run(until_idle=True))
    assert await count(app, "status:failed") == 1
    assert await count(app, "status:pending attempts:0") == 3


async def test_a_letter_that_arrives_as_a_worker_ends_is_left_to_the_next(folder):
    class Late(MemoryStore):
        """Somebody enqueues right after the worker looked for the last time."""

        late = 1

        async def backlog(self, wants):
            found = await super().backlog(wants)
            if self.late and not found.runnable and not found.in_flight:
                self.late -= 1
                await self.put([app.draft("order.created", {"n": 2})])
            return found

    ran = []
    app = Redrive("memory://", store=Late(), drain_seconds=0.01)

    @app.handler("order.created")
    async def ship(order: dict):
        ran.append(order["n"])

    await app.enqueue("order.created", {"n": 1})
    await soon(app.run(until_idle=True))
    await soon(app.run(until_idle=True))
    assert ran == [1, 2]


async def test_an_application_may_run_again(app):
    ran = []

    @app.handler("order.created")
    def ship(order: dict):
        ran.append(order["n"])

    for n in range(3):
        await app.enqueue("order.created", {"n": n})
        await soon(app.run(until_idle=True))
    assert ran == [0, 1, 2]


async def test_an_application_without_handlers_cannot_run(app):
    with pytest.raises(HandlerError, match="no handlers"):
        await app.run()


async def test_a_worker_for_queues_that_no_handler_has_cannot_run(app):
    app.add_handler("order.created", lambda order: None)
    with pytest.raises(HandlerError, match="mails"):
        await app.run(queues=["mails"])


# ---------------------------------------------------------------------- waking up


@asynccontextmanager
async def running(app: Redrive) -> AsyncIterator[asyncio.Future]:
    task = asyncio.ensure_future(app.run())
    try:
        yield task
    finally:
        app.stop()
        await soon(task)


async def test_a_letter_put_while_a_worker_rests_starts_soon(app):
    began = asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        began.set()

    async with running(app):
        await until(lambda: app._running)
        await app.enqueue("order.created", {})
        await soon(began.wait())


async def test_a_letter_put_by_another_process_starts_soon(folder):
    """Within 100 ms where the machine is idle; here only that it starts."""
    path = folder / "redrive.db"
    app = Redrive(f"sqlite:///{path}", poll_seconds=3_600)
    began = asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        began.set()

    other = Redrive(f"sqlite:///{path}")
    async with app, other, running(app):
        await until(lambda: app._running)
        await other.enqueue("order.created", {})
        await soon(began.wait())


async def test_a_handler_may_enqueue_the_next_letter(app):
    ran = []

    @app.handler("step")
    async def step(number: int):
        ran.append(number)
        if number < 5:
            await app.enqueue("step", number + 1)

    await app.enqueue("step", 1)
    await soon(app.run(until_idle=True))
    assert ran == [1, 2, 3, 4, 5]


# ---------------------------------------------------------------------- stopping


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


# ---------------------------------------------------------------------- in a process of its own

PROGRAM = """
import asyncio, sys
from redrive import Redrive
app = Redrive(f"sqlite:///{sys.argv[1]}", drain_seconds=60, lease_seconds=float(sys.argv[2]))

@app.handler("order.created")
async def ship(order: dict):
    print("began", flush=True)
    await asyncio.to_thread(sys.stdin.readline) if order["wait"] else None
    if order["wait"] == "forever":
        await asyncio.Event().wait()
    while order["wait"] == "in spite of everything":
        print("goes on", flush=True)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def main():
    async with app:
        await app.run()
asyncio.run(main())
print("ended", flush=True)
"""


class Child:
    """A worker process; it tells when a letter began and reads a line before it goes on."""

    def __init__(self, path: Path, lease: float = 60) -> None:
        self.path, self.lease = path, lease

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-c", PROGRAM, str(self.path), str(self.lease))
        environment = {"PYTHONPATH": str(ROOT / "src")}
        self.process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment)
        return self

    async def __aexit__(self, *_) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()

    async def says(self, word: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                line = await self.process.stdout.readline()
                assert line, f"it ended without saying {word!r}"
                if line.decode().strip() == word:
                    return

    def go_on(self) -> None:
        self.process.stdin.write(b"\n")


@pytest.fixture
async def on_file(folder) -> AsyncIterator[Redrive]:
    store = SqliteStore(folder / "redrive.db")
    async with Redrive("memory://", store=store, sweep_seconds=0.05, poll_seconds=0.05) as app:
        yield app


async def test_sigterm_finishes_what_runs(on_file, folder):
    receipt = await on_file.enqueue("order.created", {"wait": "a line"})
    async with Child(folder / "redrive.db") as child:
        await child.says("began")
        child.process.send_signal(signal.SIGTERM)
        child.go_on()
        await child.says("ended")
        assert await soon(child.process.wait()) == 0
    assert (await on_file.desk.show(receipt.id)).status is Status.DELIVERED


async def test_a_second_sigterm_stops_now_and_gives_the_attempt_back(on_file, folder):
    receipt = await on_file.enqueue("order.created", {"wait": "forever"})
    async with Child(folder / "redrive.db") as child:
        await child.says("began")
        child.go_on()
        child.process.send_signal(signal.SIGTERM)
        child.process.send_signal(signal.SIGINT)
        await child.says("ended")
    letter = await on_file.desk.show(receipt.id)
    assert (letter.status, letter.attempts, letter.losses) == (Status.PENDING, 0, 0)


async def test_a_program_ends_although_a_handler_swallows_its_cancellation(on_file, folder):
    receipt = await on_file.enqueue("order.created", {"wait": "in spite of everything"})
    async with Child(folder / "redrive.db") as child:
        await child.says("began")
        child.go_on()
        await child.says("goes on")
        child.process.send_signal(signal.SIGTERM)
        child.process.send_signal(signal.SIGINT)
        await child.says("ended")
        assert await soon(child.process.wait()) == 0
    assert (await on_file.desk.show(receipt.id)).status is Status.PENDING


async def test_a_letter_survives_kill_9_of_its_worker_and_runs_again(on_file, folder):
    receipt = await on_file.enqueue("order.created", {"wait": "forever"})
    async with Child(folder / "redrive.db", lease=2) as child:
        await child.says("began")
    ran = []

    @on_file.handler("order.created")
    async def ship(order: dict):
        ran.append(order)

    await soon(on_file.run(until_idle=True))
    letter = await on_file.desk.show(receipt.id)
    assert (letter.status, letter.attempts, letter.losses) == (Status.DELIVERED, 1, 1)
    assert len(ran) == 1


async def test_nothing_is_lost_by_a_restart_in_the_middle(folder):
    path = folder / "redrive.db"
    ran, stopped = [], []

    def build() -> Redrive:
        app = Redrive(f"sqlite:///{path}", concurrency=2, prefetch=4)

        @app.handler("order.created", policy=RetryPolicy.immediate(max_attempts=2))
        async def ship(order: dict):
            ran.append(order["n"])
            await asyncio.sleep(0)
            if order["n"] % 5 == 0 and ran.count(order["n"]) == 1:
                raise OSError("down")
            if len(ran) >= 20 and not stopped:
                stopped.append(app)
                app.stop()

        return app

    async with build() as app:
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(50)])
        await soon(app.run())
        left = await count(app, "status:pending")
        assert 0 < left < 50
    async with build() as app:
        await soon(app.run(until_idle=True))
        assert await count(app, "status:delivered") == 50
        assert (await app.desk.stats()).balanced
    assert {n: ran.count(n) for n in range(50)} == {n: 1 + (n % 5 == 0) for n in range(50)}


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
