"""A worker by itself, on the real clock: it ends when nothing is left, and wakes up when a letter comes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.app.waiting import count, running, until
from tests.engine.starting import soon

from redrive import Redrive, RetryPolicy, Status
from redrive.core.moves import Move
from redrive.errors import HandlerError
from redrive.stores.contract import Want
from redrive.stores.memory import MemoryStore

ROOT = Path(__file__).parents[3]


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
