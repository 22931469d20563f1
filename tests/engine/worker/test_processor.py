"""The way of a letter, step by step: what the store holds between two ticks."""

from __future__ import annotations

import asyncio
import gc

import pytest
from tests.engine.starting import soon

from redrive import Redrive, RetryPolicy, Status
from redrive.core.letter import Draft
from redrive.core.policy import DEFAULT_RETRY_POLICY
from redrive.stores.contract import Want
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock, drive


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def app():
    return Redrive("memory://")


async def ticks(test, count: int) -> None:
    for _ in range(count):
        await test.processor.tick()


async def test_an_attempt_is_counted_at_claim(app):
    gate = asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        await soon(gate.wait())

    async with drive(app) as test:
        receipt = await app.enqueue("order.created", {})
        await ticks(test, 3)
        letter = await test.letter(receipt.id)
        assert (letter.status, letter.attempts, letter.worker) == (Status.IN_FLIGHT, 1, test.worker.name)
        gate.set()
        await test.run_until_idle()


async def test_it_says_zero_while_there_is_more_to_do_and_rests_otherwise(app):
    app.add_handler("order.created", lambda order: None)
    async with drive(app) as test:
        assert await test.processor.tick() > 0
        await app.enqueue("order.created", {})
        assert await test.processor.tick() == 0


async def test_it_is_idle_only_when_everything_is_settled(app):
    @app.handler("order.created")
    async def ship(order: dict): ...

    async with drive(app) as test:
        assert test.processor.idle
        receipt = await app.enqueue("order.created", {})
        await test.processor.tick()
        assert not test.processor.idle
        for _ in range(10):
            if test.processor.idle:
                assert (await test.letter(receipt.id)).status is Status.DELIVERED
            await test.processor.tick()
        assert test.processor.idle


async def test_a_policy_written_by_another_release_falls_back_to_the_handlers(app, clock):
    @app.handler("order.created", policy=RetryPolicy.immediate(max_attempts=3))
    async def ship(order: dict):
        raise OSError("down")

    async with drive(app, clock=clock) as test:
        draft = Draft(id="a", queue="default", kind="order.created", payload=b"{}", policy="fibonacci:of=tomorrow")
        await test.store.put([draft])
        await test.run_until_idle()
        letter = await test.letter("a")
    assert (letter.status, letter.attempts) == (Status.FAILED, 3)


async def test_a_worker_does_not_keep_every_policy_that_letters_brought(app, clock):
    @app.handler("order.created")
    async def ship(order: dict):
        raise OSError("down")

    async with drive(app, clock=clock) as test:
        gc.collect()
        policies = [f"constant:delay=0.123,max_attempts=1,total={n}" for n in range(1, 1_001)]
        await app.enqueue_many([app.draft("order.created", {}, policy=policy) for policy in policies])
        await test.run_until_idle()
        assert len(await test.letters("status:failed")) == 1_000
        kept = [thing for thing in gc.get_objects() if type(thing) is RetryPolicy and thing.first == 0.123]
    assert len(kept) < 600


async def test_a_letter_of_a_kind_that_is_gone_is_judged_by_the_default_policy(app, clock):
    app.add_handler("order.created", lambda order: None, policy=RetryPolicy.NEVER)
    async with drive(app, clock=clock) as test:
        await app.enqueue("order.lost", {})
        [claim] = await test.store.claim([Want("default", ("order.lost",), 1)], lease=1, worker="w")
        assert test.processor.deciding.policy_of(claim) == DEFAULT_RETRY_POLICY


async def test_a_wall_clock_that_jumps_back_sticks_no_letter(app, clock):
    tries = []

    @app.handler("order.created", policy=RetryPolicy.constant(60, max_attempts=3))
    async def ship(order: dict):
        tries.append(clock.monotonic())
        raise OSError("down")

    async with drive(app, clock=clock) as test:
        await app.enqueue("order.created", {})
        await test.tick()
        clock.jump(-3_600)
        await test.run_until_idle()
        assert len(await test.letters("status:failed")) == 1
    assert tries[1] - tries[0] == 60 + 3_600  # the jump shifts a due time by its size
    assert tries[2] - tries[1] == 60


async def test_a_wall_clock_that_jumps_forward_costs_no_lease(app, clock):
    gate = asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        await soon(gate.wait())

    async with drive(app, clock=clock) as test:
        await app.enqueue("order.created", {})
        await ticks(test, 3)
        clock.jump(86_400)
        assert await test.processor.rescue() == 0
        gate.set()
        await test.run_until_idle()
        assert len(await test.letters("status:delivered losses:0")) == 1


async def test_what_one_line_cannot_run_does_not_keep_another_from_running(clock):
    app = Redrive("memory://", concurrency=4)
    gate, ran = asyncio.Event(), []

    @app.handler("slow", queue="slow")
    async def slow(order: dict):
        await soon(gate.wait())

    @app.handler("quick")
    async def quick(order: dict):
        ran.append(1)

    async with drive(app, clock=clock) as test:
        await app.enqueue_many([app.draft("slow", {}) for _ in range(50)])
        await ticks(test, 3)
        await app.enqueue_many([app.draft("quick", {}) for _ in range(5)])
        await ticks(test, 5)
        assert len(ran) == 5
        gate.set()
        await test.run_until_idle()


async def test_letters_run_in_the_order_they_became_due(clock):
    app, ran = Redrive("memory://", concurrency=1), []

    @app.handler("order.created")
    async def ship(order: dict):
        ran.append(order["n"])

    async with drive(app, clock=clock) as test:
        for n in range(60):
            await app.enqueue("order.created", {"n": n})
        await test.run_until_idle()
    assert ran == list(range(60))


class Watched(MemoryStore):
    """A memory store that counts its exchanges, and answers them a while after they were made."""

    def __init__(self, clock, *, pauses=0):
        super().__init__(clock)
        self.exchanges, self.pauses = 0, pauses

    async def exchange(self, *settled_and_wanted, **claiming):
        self.exchanges += 1
        exchanged = await super().exchange(*settled_and_wanted, **claiming)
        for _ in range(self.pauses):
            await asyncio.sleep(0)
        return exchanged


@pytest.mark.parametrize("kinds", [("slow",), ("slow", "quick")])
async def test_a_process_with_its_hands_full_leaves_the_store_alone(clock, kinds):
    app, gate, store = Redrive("memory://", concurrency=4), asyncio.Event(), Watched(clock)

    async def wait(order: dict):
        await soon(gate.wait())

    for kind in kinds:
        app.add_handler(kind, wait, queue=kind)
    async with drive(app, clock=clock, store=store) as test:
        await app.enqueue_many([app.draft("slow", {}) for _ in range(50)])
        while await test.processor.tick() == 0:
            assert store.exchanges < 20
        assert [test.capacity.by_kind[kind].running for kind in kinds] == [4, 0][: len(kinds)]
        gate.set()
        await test.run_until_idle()


async def test_what_was_claimed_in_the_instant_of_a_cancellation_is_given_back(clock):
    app, store = Redrive("memory://"), Watched(clock, pauses=3)
    app.add_handler("order.created", lambda order: None)
    async with drive(app, clock=clock, store=store) as test:
        letters = [(await app.enqueue("order.created", {})).id]
        rounds = asyncio.ensure_future(test.processor.tick())
        await asyncio.sleep(0)
        [asked] = test.processor.exchanges._asked  # the task that the cancellation has to meet
        asked.exchange.add_done_callback(lambda _: rounds.cancel())
        with pytest.raises(asyncio.CancelledError):
            await rounds
        await test.close()
        letter = await test.letter(letters[0])
    assert (letter.status, letter.attempts) == (Status.PENDING, 0)
