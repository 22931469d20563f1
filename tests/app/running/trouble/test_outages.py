"""A store that is away for a while: nothing is lost, nothing is blamed, work goes on by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from tests.app.waiting import until
from tests.engine.starting import soon

from redrive import Redrive, RetryPolicy, Status
from redrive.core.facts import BreakerOpened, Delivered, StoreAway, StoreBack
from redrive.errors import StoreUnavailable
from redrive.stores.memory import MemoryStore
from redrive.testing import drive

if TYPE_CHECKING:
    from redrive.core.budget import BudgetRules
    from redrive.stores.contract import Store


class Away:
    """A store of which calls fail a number of times; *late* ones fail after they were carried out."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.fails: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*given: Any, **named: Any) -> Any:
            self.asked[name] += 1
            if self.fails[name]:
                self.fails[name] -= 1
                raise StoreUnavailable("cannot reach the store; try again later")
            return await found(*given, **named)

        return call


@pytest.fixture
def away(clock):
    return Away(MemoryStore(clock))


async def test_letters_go_on_once_the_store_is_back(app, away, clock):
    ran = []

    @app.handler("order.created")
    async def ship(order: dict):
        ran.append(order["n"])

    async with drive(app, clock=clock, store=away) as test:
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(30)])
        away.fails["exchange"] = 5
        for _ in range(5):
            assert await test.processor.tick() > 0  # it rests and does not spin
        await test.run_until_idle()
        assert len(await test.letters("status:delivered attempts:1")) == 30
    assert sorted(ran) == list(range(30))


@pytest.mark.parametrize("outage", range(1, 9))
async def test_an_outcome_is_settled_however_long_the_store_is_away(app, away, clock, outage):
    ran = []

    @app.handler("order.created", policy=RetryPolicy.immediate(max_attempts=3))
    async def ship(order: dict):
        ran.append(order["n"])
        await asyncio.sleep(0)
        if order["n"] % 2 and ran.count(order["n"]) < 3:
            raise ConnectionError("down")

    async with drive(app, clock=clock, store=away) as test:
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(10)])
        await test.processor.tick()
        away.fails["exchange"] = outage
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 10
        assert sum(fact.count for fact in test.facts if isinstance(fact, Delivered)) == 10
    assert Counter(ran) == {n: 3 if n % 2 else 1 for n in range(10)}  # nothing ran for nothing


@pytest.mark.parametrize("call", ["spend", "report", "exchange"])
async def test_no_call_that_fails_costs_a_letter_or_stops_the_worker(app, away, clock, call):
    app.breaker("warehouse", failures=50)
    app.queue("default", retry_budget=True)
    tries: Counter[int] = Counter()

    @app.handler("order.created", breaker="warehouse", policy=RetryPolicy.constant(1, max_attempts=3))
    async def ship(order: dict):
        tries[order["n"]] += 1
        if tries[order["n"]] < 3:
            raise ConnectionError("down")

    async with drive(app, clock=clock, store=away) as test:
        await app.enqueue_many([app.draft("order.created", {"n": n}) for n in range(10)])
        for _ in range(6):
            away.fails[call] = 1
            await test.processor.tick()
        await test.run_until_idle()
        assert away.fails[call] == 0
        assert len(await test.letters("status:delivered attempts:3")) == 10


@pytest.mark.parametrize("call", ["spend", "exchange"])
async def test_a_retry_is_decided_and_paid_for_once_however_often_the_store_refused(app, away, clock, call):
    gate, draws, paid = asyncio.Event(), [], Counter()
    spend, draw = away.store.spend, clock.draw

    app.queue("default", retry_budget=True)

    async def watched(queue: str, rules: BudgetRules, *, firsts: int, retries: int) -> float:
        paid.update(firsts=firsts, retries=retries)
        return await spend(queue, rules, firsts=firsts, retries=retries)

    @app.handler("order.created", policy=RetryPolicy.constant(60, max_attempts=3))
    async def ship(order: dict):
        await soon(gate.wait())
        raise ConnectionError("down")

    away.store.spend, clock.draw = watched, lambda: draws.append(1) or draw()
    async with drive(app, clock=clock, store=away) as test:
        await app.enqueue("order.created", {})
        for _ in range(3):
            await test.processor.tick()
        away.fails[call] = 5
        gate.set()
        async with asyncio.timeout(120):
            while not await test.letters("status:pending attempts:1"):
                await asyncio.sleep(0)
                await test.processor.tick()
        assert not away.fails[call]
    assert (len(draws), paid) == (1, {"firsts": 1, "retries": 1})


async def test_one_failure_is_told_to_a_breaker_once_however_often_the_store_refused(app, away, clock):
    app.breaker("warehouse", failures=3, ratio=0)

    @app.handler("order.created", breaker="warehouse", policy=RetryPolicy.constant(1, max_attempts=2))
    async def ship(order: dict):
        raise ConnectionError("down")

    async with drive(app, clock=clock, store=away) as test:
        await app.enqueue("order.created", {})
        await test.processor.tick()
        away.fails["exchange"] = 5
        for _ in range(7):
            await test.processor.tick()
        assert not [fact for fact in test.facts if isinstance(fact, BreakerOpened)]
        assert (await test.store.breakers())["warehouse"].failures == 1


async def test_a_refused_enqueue_is_an_error_and_keeps_nothing(app, away, clock):
    app.add_handler("order.created", lambda order: None)
    async with drive(app, clock=clock, store=away) as test:
        away.fails["put"] = 1
        with pytest.raises(StoreUnavailable):
            await app.enqueue("order.created", {})
        assert test.facts == []
        assert await test.letters() == []


@pytest.mark.parametrize("call", ["backlog", "extend", "expired", "retain", "workers", "tallies", "breakers", "wait"])
async def test_a_running_worker_outlives_any_call_that_fails(call):
    away = Away(MemoryStore())
    app = Redrive("memory://", store=away, sweep_seconds=0.005, lease_seconds=0.03, poll_seconds=0.005)
    app.breaker("warehouse")
    told = asyncio.Event()

    @app.handler("order.created", breaker="warehouse")
    async def ship(order: dict):
        told.set()

    running = asyncio.ensure_future(app.run(signals=False))
    await until(lambda: away.asked["backlog"])
    away.fails[call] = 3
    await app.enqueue("order.created", {})
    await soon(told.wait())
    if call != "breakers":  # looked at once a second
        await until(lambda: not away.fails[call])
    app.stop()
    await soon(running)
    assert not running.exception()


async def test_until_idle_is_not_ended_by_an_outage():
    away = Away(MemoryStore())
    app = Redrive("memory://", store=away, poll_seconds=0.005)

    @app.handler("order.created")
    async def ship(order: dict): ...

    receipt = await app.enqueue("order.created", {}, delay=0.02)
    away.fails.update(exchange=3, backlog=3)
    await soon(app.run(until_idle=True, signals=False))
    letter = await away.store.get(receipt.id)
    assert letter is not None
    assert letter.status is Status.DELIVERED


async def test_a_worker_whose_store_is_gone_for_good_still_ends_when_stopped():
    away = Away(MemoryStore())
    app = Redrive("memory://", store=away, drain_seconds=0.05)
    began = asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        began.set()
        await asyncio.sleep(0.01)

    await app.enqueue("order.created", {})
    running = asyncio.ensure_future(app.run(signals=False))
    await soon(began.wait())
    away.fails["exchange"] = 1_000_000
    app.stop()
    await soon(running)


async def test_an_outage_is_told_once_and_so_is_its_end(app, away, clock):
    app.add_handler("order.created", _nothing)
    async with drive(app, clock=clock, store=away) as test:
        away.fails["exchange"] = 5
        for _ in range(9):
            await test.processor.tick()
        told = [type(fact) for fact in test.facts if isinstance(fact, StoreAway | StoreBack)]
        assert told == [StoreAway, StoreBack]


async def _nothing(order: dict) -> None:
    pass


async def test_a_worker_waits_while_the_wal_of_another_file_lies_beside_a_backup_and_then_goes_on(folder):
    path, wal = folder / "redrive.db", folder / "redrive.db-wal"
    app = Redrive(f"sqlite:///{path}")
    facts, ran, refused = [], [], asyncio.Event()
    app.listen(facts.append)

    @app.handler("order.created")
    async def ship(order: dict):
        ran.append(order["n"])

    await app.enqueue("order.created", {"n": 1})
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("VACUUM INTO ?", (str(folder / "backup.db"),))
    app.store.exchange = _telling(app.store.exchange, refused, after=5)
    task = asyncio.ensure_future(app.run(signals=False))
    await until(lambda: ran == [1])
    (folder / "backup.db").rename(path)
    done, _ = await soon(
        asyncio.wait([task, asyncio.ensure_future(refused.wait())], return_when=asyncio.FIRST_COMPLETED)
    )
    assert task not in done, "the worker ended"
    wal.unlink()
    await until(lambda: ran == [1, 1])  # as the backup has it
    await app.enqueue("order.created", {"n": 2})
    await until(lambda: ran == [1, 1, 2])
    app.stop()
    await soon(task)
    assert [type(fact) for fact in facts if isinstance(fact, (StoreAway, StoreBack))] == [StoreAway, StoreBack]


def _telling(call: Any, told: asyncio.Event, *, after: int) -> Any:
    """Return *call*, setting *told* once it was refused so often because of a WAL that belongs elsewhere."""
    refusals: list[str] = []

    async def watched(*given: Any, **named: Any) -> Any:
        try:
            return await call(*given, **named)
        except StoreUnavailable as error:
            refusals.append(str(error))
            if sum("does not belong" in refusal for refusal in refusals) >= after:
                told.set()
            raise

    return watched
