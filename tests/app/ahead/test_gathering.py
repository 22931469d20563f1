"""Outcomes gather before an exchange: never while a slot or a letter waits for it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from tests.app.ahead.rounds import orders, ready, ticks, turns
from tests.engine.starting import soon

from redrive import Redrive
from redrive.engine.worker.slots import run_times


@pytest.fixture
def gates():
    """One gate for each letter that waits."""
    return {n: asyncio.Event() for n in range(6, 40)}


@pytest.fixture
def busy(gates, driven, monkeypatch):
    """Give a worker of two slots that holds letters ready, and a store whose exchanges take a while."""
    monkeypatch.setattr(run_times, "_LONGEST_COMPANY", 60.0)  # each test ends the wait itself

    @asynccontextmanager
    async def opened(**options):
        app = Redrive("memory://", concurrency=2)

        async def ship(order: dict):
            if (gate := gates.get(order["n"])) is not None:
                await soon(gate.wait())

        app.add_handler("order.created", ship)
        async with driven(app) as test:
            await orders(app, 30, **options)
            await ticks(test, 8)
            test.processor.exchanges.seconds = 30.0
            [slots] = test.capacity.all
            slots.ahead.low = 2
            yield test
            for gate in gates.values():
                gate.set()
            test.processor.exchanges.seconds = 0.0
            await test.run_until_idle()
            assert len(await test.letters("status:delivered attempts:1")) == 30

    return opened


async def gathering(test) -> asyncio.Task[None]:
    task = asyncio.ensure_future(test.processor.gather())
    await turns()
    return task


async def test_outcomes_gather_while_the_slots_have_plenty_of_letters(busy, gates):
    async with busy() as test:
        gates[6].set()
        await turns()
        waits = await gathering(test)
        for n in (7, 8, 9):
            gates[n].set()
            await turns()
        assert (waits.done(), len(test.processor.exchanges.outcomes)) == (False, 4)
        waits.cancel()


async def test_the_rounds_of_a_worker_gather_outcomes(busy, gates):
    async with busy() as test:
        rounds = asyncio.ensure_future(test.worker._rounds(until_idle=False))
        await turns()
        for n in (6, 7, 8):
            gates[n].set()
            await turns()
        assert len(test.processor.exchanges.outcomes) == 3
        test.processor.stop()
        await turns()
        assert not test.processor.exchanges.outcomes
        rounds.cancel()
        await asyncio.gather(rounds, return_exceptions=True)
        test.processor.stopping = False


async def test_an_exchange_does_not_wait_until_the_slots_run_out_of_letters(busy, gates):
    async with busy() as test:
        gates[6].set()
        await turns()
        waits = await gathering(test)
        while ready(test) > 1:
            assert not waits.done()
            next(gate for gate in gates.values() if not gate.is_set()).set()
            await turns()
        assert waits.done()


async def test_an_exchange_does_not_wait_if_the_next_letter_of_a_key_waits_for_it(busy, gates):
    async with busy(key="customer-1") as test:  # a queue without order: all of them may run
        waits = await gathering(test)
        assert not waits.done()
        gates[6].set()
        await turns()
        assert waits.done()
        assert (await gathering(test)).done()  # nor the next time: no exchange has taken the outcome
        await ticks(test, 1)
        again = await gathering(test)
        assert not again.done()
        again.cancel()


async def test_a_stop_does_not_wait_for_more_outcomes(busy, gates):
    async with busy() as test:
        gates[6].set()
        await turns()
        waits = await gathering(test)
        assert not waits.done()
        test.processor.stop()
        await turns()
        assert waits.done()
        test.processor.stopping = False


async def test_new_letters_do_not_wait_for_outcomes_if_slots_are_free_for_them(driven, monkeypatch):
    monkeypatch.setattr(run_times, "_LONGEST_COMPANY", 60.0)
    app, gate, ran = Redrive("memory://", concurrency=2), asyncio.Event(), []

    async def ship(order: dict):
        if order["n"] >= 6:
            await soon(gate.wait())

    async def bill(order: dict):
        ran.append(order)

    app.add_handler("order.created", ship)
    app.add_handler("order.paid", bill, queue="bills")
    async with driven(app) as test:
        await orders(app, 30)
        await ticks(test, 8)
        test.processor.exchanges.seconds = 30.0
        waits = await gathering(test)
        assert not waits.done()
        listens = asyncio.ensure_future(test.worker._listen())
        await turns()
        await app.enqueue("order.paid", {})
        await soon(waits)
        listens.cancel()
        await ticks(test, 2)
        assert ran == [{}]
        gate.set()
        test.processor.exchanges.seconds = 0.0
        await test.run_until_idle()


async def test_outcomes_do_not_gather_where_an_exchange_takes_no_time(busy, gates):
    async with busy() as test:
        test.processor.exchanges.seconds = 0.0
        gates[6].set()
        await turns()
        assert (await gathering(test)).done()
