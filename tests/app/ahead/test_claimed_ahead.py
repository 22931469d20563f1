"""Letters claimed ahead: they begin when a slot becomes free, and every promise holds for those that have not begun."""

from __future__ import annotations

import asyncio
import threading
import time

import msgspec
import pytest
from tests.app.ahead.rounds import orders, ready, ticks, turns
from tests.engine.starting import PATIENCE, soon

from redrive import Redrive, RetryPolicy, Status
from redrive.core.facts import GivenBack
from redrive.stores.memory import MemoryStore
from redrive.testing import Drive, drive


class Closing(MemoryStore):
    """A memory store that keeps its answers back while its gate is closed."""

    def __init__(self, clock) -> None:
        super().__init__(clock)
        self.gate = asyncio.Event()
        self.gate.set()

    async def exchange(self, *given, **named):
        exchanged = await super().exchange(*given, **named)
        await soon(self.gate.wait())
        return exchanged


async def test_a_free_slot_begins_the_next_letter_while_the_store_is_busy(few, clock):
    gates = {n: asyncio.Event() for n in range(6, 30)}
    began: list[int] = []

    @few.handler("order.created")
    async def ship(order: dict):
        began.append(order["n"])
        if (gate := gates.get(order["n"])) is not None:
            await soon(gate.wait())

    store = Closing(clock)
    async with drive(few, clock=clock, store=store) as test:
        await orders(few, 30)
        await ticks(test, 8)
        assert (sorted(began), ready(test) > 4) == (list(range(8)), True)
        store.gate.clear()
        gates[6].set()
        await turns()
        tick = asyncio.ensure_future(test.processor.tick())  # settles 6, and the store does not answer
        for n in (7, 8, 9):
            gates[n].set()
            await turns()
        assert not tick.done()
        assert sorted(began) == list(range(12))
        store.gate.set()
        for gate in gates.values():
            gate.set()
        await tick
        await test.run_until_idle()


async def test_what_waits_too_long_is_given_back_with_its_attempt_and_not_claimed_again_at_once(few, slow_from, driven):
    async with driven(few) as test:
        await orders(few, 20)
        await ticks(test, 8)
        assert ready(test) > 4
        test.clock.advance(0.04)
        await ticks(test, 3)
        assert ready(test) > 4
        test.clock.advance(0.02)
        await ticks(test, 3)
        assert ready(test) == 0
        assert len(await test.letters("status:in_flight")) == 2
        assert len(await test.letters("status:pending attempts:0 losses:0")) == 12
        test.clock.advance(0.06)
        await ticks(test, 3)
        assert len(await test.letters("status:in_flight")) == 2
        whys = {fact.why for fact in test.facts if isinstance(fact, GivenBack)}
        assert whys == {"waited too long for a slot"}
        slow_from.gate.set()
        await test.run_until_idle()
        assert sorted(slow_from.began) == list(range(20))


async def test_an_idle_worker_runs_what_a_busy_one_had_claimed_ahead(few, slow_from, driven):
    async with driven(few) as test:
        await orders(few, 12)
        await ticks(test, 8)
        assert ready(test) == 4  # nothing is left for another worker
        second = Drive(few.parts(), test.store, test.clock, [])
        slow_from.first = 100  # where the second worker runs, the dependency is quick
        await ticks(second, 3)
        assert len(slow_from.began) == 8
        test.clock.advance(0.06)
        await ticks(test, 3)
        await second.tick()
        assert sorted(slow_from.began) == list(range(12))
        slow_from.gate.set()
        await test.run_until_idle()
        assert {letter.attempts for letter in await test.letters()} == {1}
        await second.close()


async def test_letters_that_wait_for_others_of_their_queue_are_given_back_too(driven):
    app, gate = Redrive("memory://", concurrency=1), asyncio.Event()

    async def ship(order: dict):
        await soon(gate.wait())

    app.add_handler("order.created", ship)
    app.add_handler("order.changed", ship, breaker="warehouse")
    async with driven(app) as test:
        await app.enqueue("order.created", {})
        await app.enqueue("order.changed", {})
        await ticks(test, 4)
        test.clock.advance(0.06)
        await ticks(test, 4)
        assert len(await test.letters("status:in_flight")) == 1
        gate.set()
        await test.run_until_idle()
        assert len(await test.letters("status:delivered attempts:1")) == 2


async def test_kinds_that_share_a_queue_take_turns(driven):
    app, ran = Redrive("memory://", concurrency=1), []

    async def ship(order: dict):
        ran.append(order["kind"])
        await asyncio.sleep(0)

    app.add_handler("order.created", ship)
    app.add_handler("order.changed", ship, concurrency=1)
    async with driven(app) as test:
        await app.enqueue_many(
            [app.draft(k, {"kind": k}) for k in ("order.created", "order.changed") for _ in range(40)]
        )
        await test.run_until_idle()
    assert 10 <= ran[:40].count("order.changed") <= 30


async def test_a_breaker_that_opens_gives_back_what_was_claimed_ahead(few, driven):
    few.breaker("warehouse", failures=3, open_for=60)
    gate, began = asyncio.Event(), []

    @few.handler("order.created", breaker="warehouse")
    async def ship(order: dict):
        began.append(order["n"])
        if order["n"] >= 6:
            await soon(gate.wait())

    async with driven(few) as test:
        await orders(few, 20)
        await ticks(test, 8)
        assert ready(test) > 4
        [rules] = test.processor._dependencies._rules.values()
        await test.store.report("warehouse", rules, successes=0, failures=100)  # other workers met them
        await test.worker.attend()
        await ticks(test, 3)
        assert ready(test) == 0
        gate.set()
        await test.tick()
        assert sorted(began) == list(range(8))
        assert len(await test.letters("status:pending attempts:0")) == 12


async def test_max_in_flight_counts_what_was_claimed_ahead(driven):
    app, most = Redrive("memory://", concurrency=4), 0
    app.queue("default", max_in_flight=6)

    @app.handler("order.created")
    async def ship(order: dict):
        await asyncio.sleep(0)

    async with driven(app) as test:
        await orders(app, 60)
        for _ in range(200):
            await test.processor.tick()
            most = max(most, len(await test.letters("status:in_flight")))
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 60
    assert 4 < most <= 6


async def test_a_handler_that_never_waits_leaves_the_event_loop_its_turns(driven):
    app, turns, seen = Redrive("memory://", prefetch=20_000), 0, []

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    @app.handler("order.created")
    async def ship(order: dict):
        seen.append(turns)

    async with driven(app) as test:
        await orders(app, 10_000)
        other = asyncio.ensure_future(turn())
        await test.run_until_idle()
        other.cancel()
    assert max(seen.count(turn) for turn in set(seen)) <= 3 * 250  # a burst of a round, and of what goes on


@pytest.mark.parametrize("engine", ["async", "thread"])
async def test_many_quick_letters_of_different_kinds_run_without_recursion(driven, engine):
    app, ran = Redrive("memory://"), []

    async def ship(order: dict):
        ran.append(order["n"])

    for kind in ("a", "b", "c"):
        app.add_handler(kind, ship, engine=engine)
    async with driven(app) as test:
        await app.enqueue_many([app.draft("abc"[n % 3], {"n": n}) for n in range(2_000)])
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 2_000
    assert sorted(ran) == list(range(2_000))


async def test_letters_that_threads_run_together_keep_to_the_concurrency_and_fail_one_by_one(driven):
    app, lock, running, most = Redrive("memory://", concurrency=3), threading.Lock(), 0, 0

    @app.handler("order.created", policy=RetryPolicy.NEVER)
    def ship(order: dict):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0)  # lets other threads run
        with lock:
            running -= 1
        if order["n"] % 10 == 0:
            raise OSError("down")

    app.add_handler("mail", lambda mail: None)  # more threads than this handler may use
    async with driven(app) as test:
        await orders(app, 1_000)
        await test.run_until_idle()
        assert len(await test.letters("status:delivered attempts:1")) == 900
        assert len(await test.letters("status:failed attempts:1")) == 100
    assert most <= 3


async def test_what_waits_in_a_thread_behind_a_letter_that_became_slow_is_given_back(driven):
    app, gate, arrived = Redrive("memory://", concurrency=1), threading.Event(), threading.Event()
    ran = []

    @app.handler("order.created")
    def ship(order: dict):
        ran.append(order["n"])
        if order["n"] == 200:
            arrived.set()
            gate.wait(PATIENCE)

    async with driven(app) as test:
        await orders(app, 260)
        while not arrived.is_set():
            await test.processor.tick()
            await turns(1)  # a round on the memory store may end without a turn of the event loop
        await ticks(test, 3)
        test.clock.advance(0.06)
        for _ in range(6):
            await test.processor.tick()
            await turns()
        assert len(await test.letters("status:in_flight")) == 1
        waiting = len(await test.letters("status:pending attempts:0 losses:0"))
        assert waiting == 260 - len(ran)
        gate.set()
        await test.run_until_idle()
        assert sorted(ran) == list(range(260))


async def test_a_suspect_sends_back_what_was_claimed_ahead(few, slow_from, driven):
    async with driven(few) as test:
        await orders(few, 30)
        await ticks(test, 8)
        assert ready(test) > 4
        [suspect] = [slots.ahead.ready.pop() for slots in test.capacity.all]
        slow_from.gate.set()
        letter = msgspec.structs.replace(suspect.letter, losses=1)
        test.processor._take([msgspec.structs.replace(suspect, letter=letter)])
        assert ready(test) == 0
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 30


async def test_a_stop_gives_back_what_was_claimed_ahead(few, slow_from, driven):
    async with driven(few) as test:
        await orders(few, 20)
        await ticks(test, 8)
        assert ready(test) > 4
        test.worker.stop()
        slow_from.gate.set()
        await turns()  # slots become free, and nothing else may begin
        await soon(test.worker.finish())
        assert sorted(slow_from.began) == list(range(8))
        assert len(await test.letters("status:pending attempts:0 losses:0")) == 12
        assert {letter.status for letter in await test.letters()} == {Status.PENDING, Status.DELIVERED}
