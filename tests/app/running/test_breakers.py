"""A dependency that is down gets a rest, and its letters wait without spending an attempt."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from redrive import Redrive, Reject, RetryPolicy, Status
from redrive.core.facts import BreakerClosed, BreakerOpened
from redrive.testing import Drive


class Warehouse:
    """A dependency: whether it is up, who called it, and how many at once."""

    def __init__(self) -> None:
        self.up = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls: list[int] = []
        self.now = self.most = 0

    async def ship(self, order: dict) -> None:
        self.calls.append(order["n"])
        self.now += 1
        self.most = max(self.most, self.now)
        await self.gate.wait()
        self.now -= 1
        if not self.up:
            raise ConnectionError("down")


@pytest.fixture
def warehouse():
    return Warehouse()


@pytest.fixture
def app(warehouse):
    app = Redrive("memory://")
    app.breaker("warehouse", failures=3, window=600, open_for=30, probes=2)
    app.add_handler(
        "order.created",
        warehouse.ship,
        breaker="warehouse",
        policy=RetryPolicy.constant(1, max_attempts=20),
        concurrency=3,
    )
    return app


async def orders(app, count: int) -> None:
    await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(count)])


def told(test: Drive, kind: type) -> list:
    return [fact for fact in test.facts if isinstance(fact, kind)]


async def test_it_opens_and_letters_wait_without_spending_an_attempt(app, driven, warehouse, clock):
    async with driven(app) as test:
        await orders(app, 20)
        for _ in range(10):
            await test.tick()
            clock.advance(1)
        called = Counter(warehouse.calls)
        letters = await test.letters()
        assert len(called) < 20
        assert {letter.attempts for letter in letters if letter.status is Status.PENDING} <= {0, 1}
        assert sum(letter.attempts for letter in letters) == len(warehouse.calls)
        assert [fact.breaker for fact in told(test, BreakerOpened)] == ["warehouse"]
        assert [(each.name, each.state) for each in (await app.desk.stats()).breakers] == [("warehouse", "open")]


async def test_a_letter_that_it_holds_is_explained_by_its_name_and_next_probe(app, driven, clock):
    async with driven(app) as test:
        await orders(app, 20)
        await test.tick()
        clock.advance(20)
        await test.worker.attend()
        waiting = (await test.letters("status:pending attempts:0"))[0]
        told = await app.desk.explain(waiting.id)
        assert "breaker warehouse is open, next probe in 10 s" in [hold.text for hold in told.holds]
        assert told.story[1] == told.holds[0].text


async def test_half_open_it_lets_a_few_through_and_closes_once_they_pass(app, driven, warehouse, clock):
    async with driven(app) as test:
        await orders(app, 20)
        await test.tick()
        calls = len(warehouse.calls)
        warehouse.up = True
        clock.advance(29)
        await test.tick()
        assert len(warehouse.calls) == calls
        warehouse.gate.clear()
        clock.advance(2)
        await test.worker.attend()
        for _ in range(5):
            await test.processor.tick()
            await asyncio.sleep(0)
        assert 1 <= warehouse.now <= 2
        warehouse.gate.set()
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 20
        assert [fact.breaker for fact in told(test, BreakerClosed)] == ["warehouse"]
        assert [each.state for each in (await app.desk.stats()).breakers] == ["closed"]


async def test_a_probe_that_fails_opens_it_again(app, driven, warehouse, clock):
    async with driven(app) as test:
        await orders(app, 20)
        await test.tick()
        calls = len(warehouse.calls)
        clock.advance(31)
        await test.tick()
        assert calls < len(warehouse.calls) <= calls + 2
        calls = len(warehouse.calls)
        clock.advance(10)
        await test.tick()
        assert len(warehouse.calls) == calls
        warehouse.up = True
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 20


async def test_probes_that_found_no_letter_are_not_used_up(app, driven, warehouse, clock):
    async with driven(app) as test:
        await orders(app, 3)
        await test.tick()
        await app.desk.cancel(query="status:pending")
        warehouse.up = True
        for _ in range(35):  # it becomes half open while nobody waits
            clock.advance(1)
            await test.tick()
        receipt = await app.enqueue("order.created", {"n": 99})
        clock.advance(1)
        await test.tick()
        assert (await test.letter(receipt.id)).status is Status.DELIVERED


async def test_it_holds_for_every_worker(app, driven, warehouse, clock):
    async with driven(app) as test:
        await orders(app, 3)
        await test.tick()
        calls = len(warehouse.calls)
        second = Drive(app.parts(), test.store, clock, [])
        await orders(app, 3)
        await second.tick()
        await second.close()
        assert len(warehouse.calls) == calls


async def test_it_stays_open_over_a_restart(app, driven, warehouse, clock):
    async with driven(app) as test:
        await orders(app, 3)
        await test.tick()
        await test.store.close()
        await test.store.open()
        assert [each.state for each in (await app.desk.stats()).breakers] == ["open"]


async def test_handlers_without_that_dependency_go_on(app, driven):
    app.add_handler("mail", lambda mail: None)
    async with driven(app) as test:
        await orders(app, 20)
        await test.tick()
        await app.enqueue("mail", {})
        await test.tick()
        assert len(await test.letters("kind:mail status:delivered")) == 1


async def test_a_letter_that_can_never_succeed_says_nothing_of_the_dependency(app, driven):
    @app.handler("odd", breaker="warehouse")
    async def odd(order: dict):
        raise Reject("no such order")

    async with driven(app) as test:
        await app.enqueue_many([app.draft("odd", {}) for _ in range(30)])
        await test.run_until_idle()
        assert len(await test.letters("status:failed")) == 30
        assert told(test, BreakerOpened) == []


async def test_several_handlers_share_one_dependency(app, driven, warehouse):
    app.add_handler("order.cancelled", warehouse.ship, breaker="warehouse")
    async with driven(app) as test:
        await orders(app, 5)
        await test.tick()
        calls = len(warehouse.calls)
        await app.enqueue("order.cancelled", {"n": 0})
        await test.tick()
        assert len(warehouse.calls) == calls


async def test_until_it_heals_no_letter_is_lost_or_fails(app, driven, warehouse, clock):
    async with driven(app) as test:
        await orders(app, 30)
        for _ in range(4):
            await test.tick()
            clock.advance(31)
        warehouse.up = True
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 30


# ---------------------------------------------------------------------- the retry budget


async def test_an_empty_budget_delays_retries_and_fails_none(driven, clock):
    app = Redrive("memory://", concurrency=500, retry_budget="on")
    start = clock.monotonic()

    @app.handler("order.created", policy=RetryPolicy.immediate(max_attempts=3))
    async def ship(order: dict):
        raise ConnectionError("down")

    async with driven(app) as test:
        await orders(app, 300)
        await test.run_until_idle()
        letters = await test.letters("status:failed")
    assert len(letters) == 300
    assert {(letter.attempts, letter.why) for letter in letters} == {(3, "exhausted")}
    # 600 retries, of which 100 were saved up and 60 earned by first tries; the rest is paid at 10 a second.
    assert clock.monotonic() - start >= (600 - 100 - 60) / 10 - 5


async def test_a_quiet_queue_retries_without_a_wait(app, driven, warehouse):
    app.queue("default", retry_budget=True)
    app.add_handler("quick", warehouse.ship, policy=RetryPolicy.immediate(max_attempts=3))
    async with driven(app) as test:
        receipt = await app.enqueue("quick", {"n": 1})
        await test.tick()
        assert [each.delay for each in (await test.letter(receipt.id)).tries] == [0, 0, 0]


async def test_one_queues_empty_budget_is_not_anothers(driven, clock):
    app = Redrive("memory://", concurrency=500, retry_budget="on")

    async def fail(order: dict):
        raise ConnectionError("down")

    app.add_handler("flood", fail, queue="flood", policy=RetryPolicy.immediate(max_attempts=3))
    app.add_handler("calm", fail, queue="calm", policy=RetryPolicy.immediate(max_attempts=3))
    async with driven(app) as test:
        await app.enqueue_many([app.draft("flood", {}) for _ in range(200)])
        await test.tick()
        assert await test.letters("queue:flood status:pending")
        await app.enqueue("calm", {})
        await test.tick()
        assert len(await test.letters("queue:calm status:failed")) == 1


async def test_a_worker_that_starts_while_a_breaker_is_open_spends_no_attempt(app, warehouse):
    rules, ran = app._declared.breakers["warehouse"], asyncio.Event()
    app.add_handler("other", lambda letter: ran.set())
    async with app:
        await app.store.report("warehouse", rules, successes=0, failures=3)
        await orders(app, 3)
        await app.enqueue("other", {})
        worker = asyncio.create_task(app.run(signals=False))
        await ran.wait()
        app.stop()
        await worker
        assert warehouse.calls == []
