"""Queues: rate, letters in flight over all workers, pause and resume."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest
from tests.app.far_away import wait_for
from tests.engine.starting import opened

from redrive import Redrive, Status
from redrive.errors import SettingsError
from redrive.stores.memory import MemoryStore
from redrive.testing import Drive, drive


@pytest.fixture
def began(app, clock):
    """When each letter began, in seconds since the start."""
    start, moments = clock.monotonic(), []

    @app.handler("order.created")
    async def ship(order: dict):
        moments.append(clock.monotonic() - start)

    return moments


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 1.5}, "concurrency of queue 'q' is 1.5; it must be whole and above 0"),
        ({"concurrency": True}, "must be whole and above 0"),
        ({"max_size": 9.5}, "max_size of queue 'q' is 9.5"),
        ({"max_size": "9"}, "max_size of queue 'q' is '9'"),
        ({"max_in_flight": 0}, "max_in_flight of queue 'q' is 0"),
        ({"rate": float("inf")}, "rate of queue 'q' is inf; it must be a finite number above 0"),
        ({"rate": "x"}, "rate of queue 'q' is 'x'; it must be a finite number above 0"),
        ({"rate": float("nan")}, "rate of queue 'q' is nan"),
        ({"concurency": 1}, "concurency of queue 'q' is no option; did you mean concurrency?"),
    ],
)
def test_a_queue_that_makes_no_sense_is_refused_when_it_is_declared(app, options, said):
    with pytest.raises(SettingsError) as caught:
        app.queue("q", **options)
    assert said in str(caught.value)
    assert not app._declared.queues


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"failures": "5"}, "failures of breaker 'b' is '5' and must be a whole number"),
        ({"probes": 1.5}, "probes of breaker 'b' is 1.5"),
        ({"open_for": float("inf")}, "open_for of breaker 'b' is inf and must be a number"),
        ({"failure": 5}, "failure of breaker 'b' is no option; did you mean failures?"),
    ],
)
def test_a_breaker_that_makes_no_sense_is_refused_when_it_is_declared(app, rules, said):
    with pytest.raises(SettingsError) as caught:
        app.breaker("b", **rules)
    assert said in str(caught.value)


async def test_a_rate_limits_how_many_letters_begin(app, driven, began):
    app.queue("default", rate=2)
    async with driven(app) as test:
        await app.enqueue_many([app.draft("order.created", {}) for _ in range(11)])
        await test.run_until_idle()
        assert {letter.attempts for letter in await test.letters("status:delivered")} == {1}
    assert len(began) == 11
    for second in range(6):
        assert len([moment for moment in began if moment < second + 1]) <= 2 * (second + 1)


async def test_a_rate_below_one_a_second_still_lets_letters_through(app, driven, began):
    app.queue("default", rate=0.1)
    async with driven(app) as test:
        await app.enqueue_many([app.draft("order.created", {}) for _ in range(3)])
        await test.run_until_idle()
    assert len(began) == 3
    assert began[-1] >= 20


async def test_max_in_flight_holds_over_all_workers(app, driven):
    app.queue("default", max_in_flight=2)
    gate, running = asyncio.Event(), []

    @app.handler("order.created")
    async def ship(order: dict):
        running.append(order["n"])
        await gate.wait()

    async with driven(app) as test:
        second = Drive(app.parts(), test.store, test.clock, [])
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(5)])
        for _ in range(3):
            await test.processor.tick()
            await second.processor.tick()
        assert len(await test.letters("status:in_flight")) == 2
        assert len(running) == 2
        gate.set()
        await second.run_until_idle()
        await test.run_until_idle()
        await second.close()
        assert len(await test.letters("status:delivered")) == 5


async def test_concurrency_is_per_process(driven):
    app = Redrive("memory://", prefetch=0)
    app.queue("default", concurrency=2)
    gate, running = asyncio.Event(), []

    @app.handler("order.created")
    async def ship(order: dict):
        running.append(order["n"])
        await gate.wait()

    async with driven(app) as test:
        second = Drive(app.parts(), test.store, test.clock, [])
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(9)])
        for _ in range(3):
            await test.processor.tick()
            await second.processor.tick()
        assert len(running) == 4
        gate.set()
        await second.tick()
        await test.run_until_idle()
        await second.close()


async def test_a_paused_queue_begins_nothing_and_spends_no_attempt(app, driven, began):
    app.add_handler("mail", lambda mail: None, queue="mails")
    async with driven(app) as test:
        await app.desk.pause("default", reason="the warehouse moves")
        receipt = await app.enqueue("order.created", {})
        await app.enqueue("mail", {})
        await test.run_until_idle()
        letter = await test.letter(receipt.id)
        assert (letter.status, letter.attempts, began) == (Status.PENDING, 0, [])
        assert len(await test.letters("queue:mails status:delivered")) == 1
        assert (await app.desk.stats()).paused == ["default"]
        await app.desk.resume("default")
        await test.run_until_idle()
        assert (await test.letter(receipt.id)).status is Status.DELIVERED


async def test_what_runs_when_its_queue_is_paused_is_finished(app, driven):
    gate = asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        await gate.wait()

    async with driven(app) as test:
        await app.enqueue("order.created", {})
        await test.processor.tick()
        await app.desk.pause("default")
        gate.set()
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 1


async def test_what_was_claimed_ahead_does_not_begin_once_its_queue_is_paused(driven):
    app, gate, began = Redrive("memory://", concurrency=2), asyncio.Event(), []

    @app.handler("order.created")
    async def ship(order: dict):
        began.append(order["n"])
        if order["n"] >= 4:  # those before are quick, so that letters are claimed ahead
            await gate.wait()

    app.add_handler("mail", lambda mail: None, queue="mails")
    async with driven(app) as test:
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(12)])
        for _ in range(8):
            await test.processor.tick()
        assert len(began) == 6
        assert len(await test.letters("status:in_flight")) > 2
        await app.desk.pause("default", reason="incident 4711")
        await test.worker.attend()
        gate.set()
        await app.enqueue("mail", {})
        await test.run_until_idle()
        assert sorted(began) == list(range(6))
        assert len(await test.letters("kind:order.created status:pending attempts:0 losses:0")) == 6
        assert len(await test.letters("kind:mail status:delivered")) == 1
        await app.desk.resume("default")
        await test.run_until_idle()
        assert sorted(began) == list(range(12))


async def test_what_was_asked_for_before_its_queue_was_paused_does_not_begin(clock):
    class Slow(MemoryStore):
        """Answers when it is let."""

        asked, gate = asyncio.Event(), asyncio.Event()

        async def exchange(self, *given, **named):
            exchanged = await super().exchange(*given, **named)
            self.asked.set()
            await self.gate.wait()
            return exchanged

    app, store, began = Redrive("memory://"), Slow(clock), []

    @app.handler("order.created")
    async def ship(order: dict):
        began.append(order["n"])

    async with drive(app, clock=clock, store=store) as test:
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(5)])
        ticking = asyncio.ensure_future(test.processor.tick())
        await store.asked.wait()
        assert len(await test.letters("status:in_flight")) == 5
        await app.desk.pause("default")
        await test.worker.attend()
        store.gate.set()
        await ticking
        await test.run_until_idle()
        assert began == []
        assert len(await test.letters("status:pending attempts:0")) == 5


async def test_what_waits_for_a_worker_process_does_not_begin_once_its_queue_is_paused(driven, tmp_path):
    app, gate = Redrive("memory://", concurrency=50), tmp_path / "gate"
    os.mkfifo(gate)
    app.add_handler("wait", wait_for, engine="process")
    async with driven(app) as test:
        await app.enqueue_many([app.draft("wait", {"gate": str(gate), "n": n}) for n in range(50)])
        for _ in range(4):
            await test.processor.tick()
        assert test.capacity.running == 50
        pipe = await opened(gate)  # a letter has begun, and reads
        await app.desk.pause("default")
        await test.worker.attend()
        pipe.close()
        while test.capacity.running:
            with contextlib.suppress(OSError):
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
            await asyncio.sleep(0.01)
        await test.tick(patience=120)
        assert len(await test.letters("status:delivered")) <= 2 * (os.cpu_count() or 1)
        assert len(await test.letters("status:pending attempts:0")) >= 50 - 2 * (os.cpu_count() or 1)


async def test_a_pause_outlives_a_restart_and_another_declaration(app, driven, began):
    async with driven(app) as test:
        await app.desk.pause("default")
        await app.enqueue("order.created", {})
        app.queue("default", rate=100)
        await test.store.close()
        await test.store.open()
        await test.store.declare([app._declared.queues["default"]])
        await test.run_until_idle()
        assert began == []


async def test_an_application_may_work_on_some_of_its_queues(app, driven, began):
    app.add_handler("mail", lambda mail: None, queue="mails")
    async with driven(app) as test:
        await app.enqueue("order.created", {})
        await app.enqueue("mail", {})
        mails = Drive(app.parts(["mails"]), test.store, test.clock, [])
        await mails.run_until_idle()
        await mails.close()
        assert [letter.kind for letter in await test.letters("status:delivered")] == ["mail"]
