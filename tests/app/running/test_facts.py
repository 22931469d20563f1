"""Facts: told after the store said yes, and a broken listener never stops a letter."""

from __future__ import annotations

import asyncio

import pytest

from redrive import Redrive, RetryPolicy, Status
from redrive.core.facts import Delivered, Died, Enqueued, GivenBack, Retried
from redrive.errors import StoreUnavailable
from redrive.stores.memory import MemoryStore
from redrive.testing import drive


@pytest.fixture
def app():
    app = Redrive("memory://")

    @app.handler("order.created", policy=RetryPolicy.constant(5, max_attempts=2))
    async def ship(order: dict):
        if order["bad"]:
            raise OSError("no route")

    return app


async def test_a_letters_way_is_told_in_order(app, driven):
    async with driven(app) as test:
        good = await app.enqueue("order.created", {"bad": False})
        bad = await app.enqueue("order.created", {"bad": True})
        await test.run_until_idle()
        facts = test.facts
    assert good.id != bad.id
    assert [type(fact) for fact in facts] == [Enqueued, Enqueued, Delivered, Retried, Died]
    retried, died = facts[3:]
    assert (retried.id, retried.attempts, retried.delay, retried.error_type) == (bad.id, 1, 5, "OSError")
    assert (died.id, died.attempts, died.why, died.fingerprint) == (bad.id, 2, "exhausted", retried.fingerprint)


async def test_deliveries_are_counted_not_listed(app, driven):
    async with driven(app) as test:
        await app.enqueue_many([app.draft("order.created", {"bad": False}) for _ in range(50)])
        await test.run_until_idle()
        delivered = [fact for fact in test.facts if isinstance(fact, Delivered)]
    assert sum(fact.count for fact in delivered) == 50
    assert len(delivered) < 50


async def test_nothing_is_told_before_the_store_said_yes(app, clock):
    class Refusing(MemoryStore):
        refusals = 0

        async def exchange(self, settlements, wants, **named):
            if settlements and self.refusals:
                self.refusals -= 1
                raise StoreUnavailable("not now")
            return await super().exchange(settlements, wants, **named)

    store = Refusing(clock)
    async with drive(app, clock=clock, store=store) as test:
        await app.enqueue("order.created", {"bad": False})
        store.refusals = 3
        for _ in range(3):
            await test.processor.tick()
        assert Delivered not in map(type, test.facts)
        await test.run_until_idle()
        assert [fact.count for fact in test.facts if isinstance(fact, Delivered)] == [1]


async def test_when_a_fact_is_told_the_store_already_has_it(app, clock):
    seen = []
    store = MemoryStore(clock)

    def look(fact):
        if isinstance(fact, (Died, Retried)):
            seen.append((type(fact), store._contents.table.row(fact.id).letter.status))

    app.listen(look)
    async with drive(app, clock=clock, store=store) as test:
        await app.enqueue("order.created", {"bad": True})
        await test.run_until_idle()
    assert seen == [(Retried, Status.PENDING), (Died, Status.FAILED)]


async def test_a_broken_listener_stops_no_letter_and_no_other_listener(app, driven):
    heard = []

    def broken(fact):
        raise RuntimeError("no exporter")

    app.listen(broken)
    app.listen(heard.append)
    async with driven(app) as test:
        await app.enqueue("order.created", {"bad": False})
        await app.enqueue("order.created", {"bad": True})
        await test.run_until_idle()
        assert heard == test.facts
        assert len(await test.letters("status:delivered")) == 1


async def test_what_goes_back_is_announced_as_given_back(app, driven):
    gate = asyncio.Event()

    @app.handler("slow")
    async def slow(order: dict):
        await gate.wait()

    async with driven(app) as test:
        receipt = await app.enqueue("slow", {})
        for _ in range(3):
            await test.processor.tick()
        await test.close()
        assert (await test.letter(receipt.id)).attempts == 0
        [fact] = [fact for fact in test.facts if isinstance(fact, GivenBack)]
        assert (fact.kind, fact.count) == ("slow", 1)


async def test_an_application_opened_twice_logs_once(app, capsys):
    for _ in range(3):
        await app.open()
        await app.close()
    async with drive(app) as test:
        await app.enqueue("order.created", {"bad": True}, policy="never")
        await test.run_until_idle()
    assert capsys.readouterr().out.count("redrive.letter.died") <= 1
