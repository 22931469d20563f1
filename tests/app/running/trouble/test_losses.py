"""Claims that were lost: rescue, suspects that run alone, poison, stale outcomes, leases kept alive."""

from __future__ import annotations

import asyncio

import pytest
from tests.engine.starting import soon

from redrive import Redrive, RetryPolicy, Status
from redrive.core.facts import ClaimLost, Died, GivenBack, Rescued
from redrive.stores.contract import Want
from redrive.testing import Drive

LEASE = 60.0
SWEEP = 5.0
GONE = LEASE + 1


@pytest.fixture
def ran(app):
    orders = []

    @app.handler("order.created")
    async def ship(order: dict):
        orders.append(order["n"])

    return orders


async def claim_and_die(test: Drive, limit: int = 100, kind: str = "order.created") -> int:
    """Be a worker that claims and is never heard of again."""
    claims = await test.store.claim([Want("default", (kind,), limit)], lease=LEASE, worker="dead")
    return len(claims)


async def ticks(test: Drive, count: int) -> None:
    for _ in range(count):
        await test.processor.tick()
        await asyncio.sleep(0)  # where tasks do not start eagerly, handlers begin here


async def orders(app: Redrive, *numbers: int) -> list[str]:
    receipts = await app.enqueue_many([app.draft("order.created", {"n": n}) for n in numbers])
    return [receipt.id for receipt in receipts]


async def test_a_dead_workers_letter_runs_again_within_lease_and_sweep(app, driven, ran, clock):
    async with driven(app) as test:
        [letter_id] = await orders(app, 1)
        await claim_and_die(test)
        clock.advance(LEASE - 1)
        await test.tick()
        assert ran == []
        clock.advance(1 + SWEEP)
        await test.tick()
        letter = await test.letter(letter_id)
    assert ran == [1]
    assert (letter.status, letter.attempts, letter.losses) == (Status.DELIVERED, 1, 1)


async def test_a_loss_gives_the_attempt_back_and_is_announced(app, driven, ran, clock):
    async with driven(app) as test:
        [letter_id] = await orders(app, 1)
        await claim_and_die(test)
        assert (await test.letter(letter_id)).attempts == 1
        clock.advance(GONE)
        await test.processor.rescue()
        letter = await test.letter(letter_id)
        assert (letter.status, letter.attempts, letter.losses) == (Status.PENDING, 0, 1)
        [fact] = [fact for fact in test.facts if isinstance(fact, Rescued)]
        assert (fact.id, fact.losses, fact.worker) == (letter_id, 1, "dead")


async def test_three_losses_are_a_dead_letter(app, driven, ran, clock):
    async with driven(app) as test:
        [letter_id] = await orders(app, 1)
        for _ in range(3):
            await claim_and_die(test)
            clock.advance(GONE)
            await test.worker.attend()
        letter = await test.letter(letter_id)
        assert (letter.status, letter.why, letter.losses) == (Status.FAILED, "worker_crashed", 3)
        [fact] = [fact for fact in test.facts if isinstance(fact, Died)]
        assert (fact.id, fact.why) == (letter_id, "worker_crashed")
        await test.run_until_idle()
    assert ran == []


async def test_letters_are_not_failed_for_deaths_before_they_ran_alone(app, driven, ran, clock):
    async with driven(app) as test:
        await orders(app, 1, 2, 3)
        for _ in range(5):
            assert await claim_and_die(test) == 3
            clock.advance(GONE)
            await test.worker.attend()
        assert {(letter.losses, letter.attempts) for letter in await test.letters("status:pending")} == {(1, 0)}
        facts = [fact for fact in test.facts if isinstance(fact, GivenBack)]
        assert len(facts) == 4 * 3
        await test.run_until_idle()
    assert sorted(ran) == [1, 2, 3]


async def test_a_letter_that_kills_each_process_that_claims_it_is_failed_in_the_end(app, driven, ran, clock):
    async with driven(app) as test:
        deadly, neighbour = await orders(app, 1, 2)
        clock.draws = [0.9, 0.9, 0.9, 0.9, 0.1, 0.9, 0.9, 0.9, 0.1, 0.9]  # one of five, for the first letter
        for _ in range(5):
            assert await claim_and_die(test) == 2
            clock.advance(GONE)
            await test.worker.attend()
        found = {each: await test.letter(each) for each in (deadly, neighbour)}
        assert (found[deadly].status, found[deadly].losses) == (Status.FAILED, 3)
        assert (found[neighbour].status, found[neighbour].losses) == (Status.PENDING, 1)
        await test.run_until_idle()
    assert ran == [2]


async def test_losses_are_not_attempts(app, driven, clock):
    tries = []

    @app.handler("order.created", policy=RetryPolicy.immediate(max_attempts=2))
    async def ship(order: dict):
        tries.append(1)
        raise OSError("down")

    async with driven(app) as test:
        [letter_id] = await orders(app, 1)
        for _ in range(2):
            await claim_and_die(test)
            clock.advance(GONE)
            await test.worker.attend()
        await test.run_until_idle()
        letter = await test.letter(letter_id)
    assert (letter.status, letter.attempts, letter.losses, len(tries)) == (Status.FAILED, 2, 2, 2)


@pytest.mark.parametrize("engine", ["async", "thread"])
async def test_a_suspect_runs_alone(driven, clock, engine):
    app = Redrive("memory://", concurrency=10)
    running: set[int] = set()
    beside: dict[int, set[int]] = {}

    @app.handler("order.created", engine=engine)
    async def ship(order: dict):
        running.add(order["n"])
        for _ in range(5):
            await asyncio.sleep(0.001)
            for each in running:
                beside.setdefault(each, set()).update(running - {each})
        running.discard(order["n"])

    async with driven(app) as test:
        await orders(app, 1, 2)
        await claim_and_die(test)
        await orders(app, 3, 4, 5, 6)
        clock.advance(GONE)
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 6
        assert {letter.attempts for letter in await test.letters()} == {1}
    assert beside.get(1, set()) == set()
    assert beside.get(2, set()) == set()


async def test_a_suspect_does_not_begin_while_letters_that_were_asked_for_may_still_come(driven, clock):
    app, claimed = Redrive("memory://", concurrency=10), {}

    @app.handler("order.created")
    async def ship(order: dict):
        claimed[order["n"]] = len(await test.letters("status:in_flight"))

    async with driven(app) as test:
        await orders(app, 1)
        await claim_and_die(test)
        clock.advance(GONE)
        await test.processor.rescue()
        for n in (2, 3):
            test.processor.exchanges.ask()
            await asyncio.sleep(0)  # where tasks do not start eagerly, it reaches the store here
            test.capacity.all[0].ahead.size = 10  # letters end quickly: the next exchange asks for more
            await orders(app, n)
        await test.run_until_idle()
    assert (claimed[1], sorted(claimed)) == (1, [1, 2, 3])


async def test_nothing_is_begun_beside_a_suspect_however_long_it_runs(driven, clock):
    app = Redrive("memory://", concurrency=10)
    gate, began = asyncio.Event(), []

    @app.handler("order.created")
    async def ship(order: dict):
        began.append(order["n"])
        if order["n"] == 1:
            await soon(gate.wait())

    async with driven(app) as test:
        await orders(app, 1)
        await claim_and_die(test)
        clock.advance(GONE)
        await test.worker.attend()
        await ticks(test, 3)
        assert began == [1]
        await orders(app, 2, 3)
        await ticks(test, 5)
        assert began == [1]
        gate.set()
        await test.run_until_idle()
        assert sorted(began) == [1, 2, 3]
        assert len(await test.letters("status:delivered")) == 3


async def test_a_suspect_waits_until_what_runs_has_ended(driven, clock):
    app = Redrive("memory://", concurrency=10)
    gate, began = asyncio.Event(), []

    @app.handler("order.created")
    async def ship(order: dict):
        began.append(order["n"])
        if order["n"] == 2:
            await soon(gate.wait())

    async with driven(app) as test:
        await orders(app, 1)
        await claim_and_die(test)
        await orders(app, 2)
        await ticks(test, 2)
        clock.advance(GONE)
        await test.worker.attend()
        await ticks(test, 5)
        assert began == [2]
        gate.set()
        await test.run_until_idle()
        assert began == [2, 1]


async def test_neighbours_of_poison_are_never_blamed(app, driven, clock):
    """The first order ends each worker that runs it: here it never returns, and its worker is not heard of again."""
    dead, forever = [], asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        if order["n"] == 1 or not dead:  # the first death takes all along
            await forever.wait()

    async with driven(app) as test:
        ids = await orders(app, 1, 2, 3)
        for losses in (1, 2, 3):
            worker = Drive(app.parts(), test.store, clock, [])
            while not [claim for claim in worker.processor.held.values() if claim.letter.id == ids[0]]:
                await ticks(worker, 5)
            await ticks(worker, 5)
            dead.append(worker)
            clock.advance(GONE)
            await test.processor.rescue()
            assert (await test.letter(ids[0])).losses == losses
        await test.run_until_idle()
        letters = [await test.letter(each) for each in ids]
        assert [letter.status for letter in letters] == [Status.FAILED, Status.DELIVERED, Status.DELIVERED]
        assert [letter.losses for letter in letters] == [3, 1, 1]
        for worker in dead:
            await worker.close()


async def test_a_stale_outcome_changes_nothing_and_is_told(app, driven, clock):
    gate = asyncio.Event()

    @app.handler("order.created", policy=RetryPolicy.NEVER)
    async def ship(order: dict):
        await soon(gate.wait())
        raise OSError("too late")

    async with driven(app) as test:
        [letter_id] = await orders(app, 1)
        await ticks(test, 3)
        clock.advance(GONE)  # no heartbeat: it slept, or was stopped
        second = Drive(app.parts(), test.store, clock, [])
        await second.processor.rescue()
        before = await test.letter(letter_id)
        gate.set()
        await soon(test.processor.wake.wait())
        test.processor.stopping = True  # it must not claim the letter again
        await test.processor.tick()
        after = await test.letter(letter_id)
        assert (after.status, after.token, after.last_error) == (Status.PENDING, before.token, None)
        assert [fact.id for fact in test.facts if isinstance(fact, ClaimLost)] == [letter_id]
        assert test.processor.idle
        await second.close()


async def test_heartbeats_keep_the_claims_of_a_long_handler_and_of_what_waits_behind_it(driven, clock):
    app = Redrive("memory://", concurrency=1, prefetch=10)
    gate, began = asyncio.Event(), []
    gate.set()

    @app.handler("order.created")
    async def ship(order: dict):
        began.append(order["n"])
        await soon(gate.wait())

    async with driven(app) as test:
        await orders(app, *range(20))
        await ticks(test, 3)
        gate.clear()
        await ticks(test, 6)
        held = len(test.processor.held)
        assert held >= 1
        second = Drive(app.parts(), test.store, clock, [])
        for _ in range(10):
            clock.advance(LEASE / 3)
            await test.worker.attend()
            assert await second.processor.rescue() == 0
        assert len(await test.letters("status:in_flight")) == held
        gate.set()
        await test.run_until_idle()
        assert sorted(began) == list(range(20))
        assert {letter.losses for letter in await test.letters()} == {0}
        await second.close()


async def test_prefetch_is_bounded(driven):
    app = Redrive("memory://", concurrency=2, prefetch=8)
    gate = asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        if order["n"] >= 40:
            await soon(gate.wait())

    async with driven(app) as test:
        await orders(app, *range(100))
        most = 0
        for _ in range(60):
            await ticks(test, 1)
            most = max(most, len(test.processor.held))
        assert len(await test.letters("status:in_flight")) <= 2 * 8  # a batch to run and one on its way
        assert most <= 3 * 8  # … and one that is done and not settled yet
        gate.set()
        await test.run_until_idle()
        assert len(await test.letters("status:delivered")) == 100


async def test_a_claim_lost_to_another_is_not_begun(driven, clock):
    app = Redrive("memory://", concurrency=1, prefetch=10)
    gate, began = asyncio.Event(), []

    @app.handler("order.created")
    async def ship(order: dict):
        began.append(order["n"])
        if order["n"] == 2:
            await soon(gate.wait())

    async with driven(app) as test:
        await orders(app, *range(8))
        await ticks(test, 12)
        waiting = [claim for slots in test.capacity.all for claim in slots.ahead.ready]
        assert waiting
        clock.advance(GONE)
        second = Drive(app.parts(), test.store, clock, [])
        await second.processor.rescue()
        await test.worker._beat()
        assert not [claim for slots in test.capacity.all for claim in slots.ahead.ready]
        gate.set()
        await second.run_until_idle()
        await test.run_until_idle()
        assert sorted({*began}) == list(range(8))
        assert began.count(3) == 1
        await second.close()


async def test_a_worker_that_claims_its_own_lost_letter_again_keeps_the_new_claim(app, driven, clock):
    gates = [asyncio.Event(), asyncio.Event()]
    began = []

    @app.handler("order.created")
    async def ship(order: dict):
        began.append(1)
        await soon(gates[len(began) - 1].wait())

    async with driven(app) as test:
        [letter_id] = await orders(app, 1)
        await ticks(test, 3)
        clock.advance(GONE)
        await test.processor.rescue()  # it slept past its own lease
        await ticks(test, 3)
        assert (await test.letter(letter_id)).status is Status.IN_FLIGHT  # claimed again, while the first run goes on
        gates[0].set()
        await soon(test.processor.wake.wait())
        for _ in range(5):  # the first run's outcome is refused; the second run is still ours
            await test.processor.tick()
            clock.advance(LEASE / 3)
            await test.worker.attend()
        letter = await test.letter(letter_id)
        assert (letter.status, letter.losses) == (Status.IN_FLIGHT, 1)
        gates[1].set()
        await test.run_until_idle()
        assert (await test.letter(letter_id)).status is Status.DELIVERED
    assert len(began) == 2


async def test_a_worker_rescues_letters_that_it_has_no_handler_for(app, driven, ran, clock):
    async with driven(app) as test:
        receipt = await app.enqueue("mail", {})
        assert await claim_and_die(test, kind="mail") == 1
        clock.advance(GONE)
        await test.tick()
        letter = await test.letter(receipt.id)
    assert (letter.status, letter.attempts, letter.losses) == (Status.PENDING, 0, 1)


async def test_a_replay_starts_with_no_losses(app, driven, ran, clock):
    async with driven(app) as test:
        [letter_id] = await orders(app, 1)
        for _ in range(3):
            await claim_and_die(test)
            clock.advance(GONE)
            await test.worker.attend()
        await app.desk.replay(letter_id, reason="the host was bad")
        assert (await test.letter(letter_id)).losses == 0
        await test.run_until_idle()
        letter = await test.letter(letter_id)
    assert letter.status is Status.DELIVERED
    assert letter.failure_history[0].losses == 3


async def test_without_prefetch_no_letter_waits_behind_a_long_one(driven):
    app = Redrive("memory://", concurrency=2, prefetch=0)
    gate = asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        await soon(gate.wait())

    async with driven(app) as test:
        await orders(app, *range(10))
        await ticks(test, 6)
        assert len(await test.letters("status:in_flight")) == 2  # the rest is for other workers
        gate.set()
        await test.run_until_idle()


async def test_a_suspect_does_not_keep_others_waiting_behind_a_long_handler(app, driven, clock):
    gate, ran = asyncio.Event(), []

    @app.handler("long", queue="long")
    async def long(order: dict):
        await gate.wait()

    @app.handler("order.created")
    async def ship(order: dict):
        ran.append(order["n"])

    async with driven(app) as test:
        [suspect] = await orders(app, 1)
        await claim_and_die(test)
        await app.enqueue("long", {})
        await ticks(test, 3)
        clock.advance(GONE)
        await test.worker.attend()
        await ticks(test, 3)
        assert ran == []
        clock.advance(3)
        await orders(app, 2, 3)
        await ticks(test, 6)
        assert sorted(ran) == [2, 3]
        assert (await test.letter(suspect)).why == "waits to run alone"
        gate.set()
        await test.run_until_idle()
        assert (await test.letter(suspect)).status is Status.DELIVERED
