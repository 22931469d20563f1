"""A worker's view of shared breakers: probes are few, not wasted, and for every handler that needs one."""

from __future__ import annotations

import asyncio

import pytest

from redrive import Redrive, RetryPolicy, Status
from redrive.core.breaker import BreakerRules
from redrive.core.facts import BreakerClosed, BreakerOpened
from redrive.engine.worker.breakers import Dependencies
from redrive.stores.clock import ManualClock
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock, drive

RULES = BreakerRules(failures=2, ratio=0, open_for=30, probes=2)
NAME = "warehouse"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


@pytest.fixture
def facts():
    return []


@pytest.fixture
def dependencies(store, facts):
    return Dependencies(store, {NAME: RULES}, facts.append)


async def fail(dependencies: Dependencies, times: int = 2) -> None:
    for _ in range(times):
        dependencies.learned(NAME, succeeded=False)
    await dependencies.report()


async def half_open(dependencies: Dependencies, clock: ManualClock) -> None:
    await fail(dependencies)
    clock.advance(31)
    await dependencies.look()


async def test_closed_there_is_no_limit(dependencies):
    assert dependencies.limit(NAME) is None
    assert dependencies.admits(NAME)
    assert not dependencies.is_open(NAME)


async def test_open_it_admits_nobody(dependencies, facts):
    await fail(dependencies)
    assert (dependencies.limit(NAME), dependencies.admits(NAME), dependencies.is_open(NAME)) == (0, False, True)
    assert [(type(fact), fact.breaker) for fact in facts] == [(BreakerOpened, NAME)]


async def test_a_look_that_began_before_it_opened_does_not_announce_it_a_second_time(clock, facts):
    class Slow(MemoryStore):
        read, go_on = asyncio.Event(), asyncio.Event()

        async def breakers(self):
            found = await super().breakers()
            self.read.set()
            await self.go_on.wait()
            return found

    dependencies = Dependencies(store := Slow(clock), {NAME: RULES}, facts.append)
    dependencies.learned(NAME, succeeded=True)
    await dependencies.report()
    look = asyncio.create_task(dependencies.look())
    await store.read.wait()
    await fail(dependencies)
    store.go_on.set()
    await look
    assert dependencies.is_open(NAME)
    await dependencies.look()
    assert [type(fact) for fact in facts] == [BreakerOpened]


async def test_half_open_it_admits_as_many_as_there_are_probes(dependencies, clock):
    await half_open(dependencies, clock)
    assert dependencies.limit(NAME) == 2
    assert [dependencies.admits(NAME) for _ in range(4)] == [True, True, False, False]


async def test_asking_for_the_limit_uses_up_nothing(dependencies, clock):
    await half_open(dependencies, clock)
    assert [dependencies.limit(NAME) for _ in range(5)] == [2] * 5


async def test_unused_probes_do_not_add_up(dependencies, clock):
    await half_open(dependencies, clock)
    for _ in range(100):
        clock.advance(1)
        await dependencies.look()
    assert dependencies.limit(NAME) == 2


async def test_a_failed_probe_takes_the_other_back(dependencies, clock):
    await half_open(dependencies, clock)
    assert dependencies.admits(NAME)
    await fail(dependencies, 1)
    assert not dependencies.admits(NAME)


async def test_passed_probes_close_it(dependencies, clock, facts):
    await half_open(dependencies, clock)
    for _ in range(2):
        assert dependencies.admits(NAME)
        dependencies.learned(NAME, succeeded=True)
    await dependencies.report()
    assert dependencies.limit(NAME) is None
    assert isinstance(facts[-1], BreakerClosed)


async def test_what_others_learned_is_heard_at_the_next_look(store, facts, clock):
    mine, theirs = (Dependencies(store, {NAME: RULES}, facts.append) for _ in range(2))
    await fail(theirs)
    assert not mine.is_open(NAME)
    await mine.look()
    assert mine.is_open(NAME)


async def test_workers_share_the_probes(store, facts, clock):
    mine, theirs = (Dependencies(store, {NAME: RULES}, facts.append) for _ in range(2))
    await fail(theirs)
    clock.advance(31)
    await mine.look()
    await theirs.look()
    assert (mine.limit(NAME), theirs.limit(NAME)) == (2, 0)


class _SlowToProbe(MemoryStore):
    """Answers how many trial letters there are only when told to."""

    def __init__(self, clock) -> None:
        super().__init__(clock)
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def probe(self, name, rules, limit):
        allowed = await super().probe(name, rules, limit)
        self.asked.set()
        await self.answer.wait()
        return allowed


async def test_probes_that_are_used_while_the_store_is_asked_for_more_are_used_up(clock, facts):
    store = _SlowToProbe(clock)
    dependencies = Dependencies(store, {NAME: RULES}, facts.append)
    store.answer.set()
    await half_open(dependencies, clock)
    store.answer.clear()
    store.asked.clear()
    looking = asyncio.create_task(dependencies.look())
    await asyncio.wait_for(store.asked.wait(), 60)
    assert [dependencies.admits(NAME) for _ in range(2)] == [True, True]
    store.answer.set()
    await looking
    assert not dependencies.admits(NAME)


async def test_a_breaker_that_this_worker_does_not_name_is_none_of_its_business(store, facts):
    await fail(Dependencies(store, {NAME: RULES}, facts.append))
    other = Dependencies(store, {"bank": RULES}, facts.append)
    await other.look()
    assert other.limit("bank") is None


@pytest.mark.parametrize("only", ["order.created", "order.cancelled"])
async def test_probes_reach_whichever_handler_has_letters(only):
    """Two handlers need one dependency; the one without letters must not keep the probes from the other."""
    app, clock, up = Redrive("memory://"), FakeClock(), []
    app.breaker(NAME, failures=2, ratio=0, open_for=30, probes=2)

    async def ship(order: dict):
        if not up:
            raise ConnectionError("down")

    for kind in ("order.created", "order.cancelled"):
        app.add_handler(kind, ship, breaker=NAME, policy=RetryPolicy.constant(1, max_attempts=9))
    async with drive(app, clock=clock) as test:
        await app.enqueue_many([app.draft(only, {}) for _ in range(5)])
        await test.tick()
        up.append(True)
        clock.advance(31)
        await test.tick()
        assert await test.letters("status:delivered")


async def test_handlers_that_share_a_dependency_share_its_probes():
    app, clock, calls = Redrive("memory://"), FakeClock(), []
    app.breaker(NAME, failures=2, ratio=0, open_for=30, probes=2)

    async def ship(order: dict):
        calls.append(order)
        raise ConnectionError("down")

    for kind in ("a", "b", "c"):
        app.add_handler(kind, ship, breaker=NAME, policy=RetryPolicy.constant(1, max_attempts=50))
    async with drive(app, clock=clock) as test:
        await app.enqueue_many([app.draft(kind, {}) for kind in "abc" * 4])
        await test.tick()
        calls.clear()
        clock.advance(31)
        await test.tick()
        assert 1 <= len(calls) <= 2
        assert {letter.status for letter in await test.letters()} == {Status.PENDING}
        assert sum(letter.attempts for letter in await test.letters()) <= 12 + 2
