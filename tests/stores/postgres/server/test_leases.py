"""Leases go by a clock of their own, which workers move on: what the server's wall clock says changes none of them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.servers import jumping
from tests.servers.postgres import NO_DISK, running
from tests.stores.samples import DELIVERED, KIND, WORKER, claim, names, put

from redrive.stores.contract import WorkerBeat
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.server.lease_clock import Ticker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.servers.postgres import Postgres

pytestmark = pytest.mark.slow
HOUR = 3_600.0
BEAT = WorkerBeat(name=WORKER, kinds=(KIND,), in_flight=1)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server of its own, whose clock jumps."""
    with running(18, **NO_DISK) as started:
        jumping.prepare(started)
        yield started


@pytest.fixture
async def store(server) -> AsyncIterator[PostgresStore]:
    jumping.jump(server, 0)
    server.psql("DROP SCHEMA IF EXISTS redrive CASCADE")
    opened = PostgresStore(server.url, listen=False)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def other(server, store) -> AsyncIterator[PostgresStore]:
    """Another process."""
    opened = PostgresStore(server.url, listen=False)
    await opened.open()
    yield opened
    await opened.close()


async def expired(store: PostgresStore, within: float = 60.0) -> list[str]:
    """Sweep until something is found."""
    async with asyncio.timeout(within):
        while not (found := await store.expired(10)):
            pass
    return names(found)


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_jump_of_the_servers_clock_takes_no_letter_from_a_living_worker(store, other, server, jump):
    await put(store, "a")
    [held] = await claim(store, lease=60)
    for span in (0, jump, 0, jump):
        jumping.jump(server, span)
        assert await other.expired(10) == await store.expired(10) == []
        assert await store.extend(BEAT, [held], lease=60) == []
        assert [beat.alive for beat in await other.workers()] == [True]
    assert await store.settle([(held, DELIVERED)]) == (True,)


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 0])
async def test_a_jump_of_the_servers_clock_does_not_keep_a_dead_workers_letter(store, other, server, jump):
    await put(store, "a")
    await other.expired(10)
    await claim(store, lease=1)
    jumping.jump(server, jump)
    began = time.monotonic()
    assert await expired(other) == ["a"]
    assert time.monotonic() - began < 30  # on a machine that does much else; by the wall clock it would be an hour


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_claim_after_a_jump_lasts_its_lease(store, other, server, jump):
    await other.extend(BEAT, [], lease=2)
    jumping.jump(server, jump)
    await put(store, "a")
    began = time.monotonic()
    await claim(store, lease=2)
    assert await expired(other) == ["a"]
    assert time.monotonic() - began >= 2 * 2 / 3


async def test_however_many_sweep_the_clock_of_leases_never_goes_faster_than_time(store, other, server):
    async def clock() -> int:
        return int(server.psql("SELECT lease_us FROM redrive.outbox_clock"))

    async def sweep(sweeper: PostgresStore) -> None:
        for _ in range(40):
            await sweeper.expired(10)
            await sweeper.extend(BEAT, [], lease=60)

    began, before = time.monotonic(), await clock()
    await asyncio.gather(*(sweep(each) for each in (store, other, store, other)))
    passed = time.monotonic() - began
    assert 0.3 * passed < (await clock() - before) / 1e6 <= passed


async def test_a_worker_that_is_gone_is_shown_as_gone_although_nobody_sweeps(store, other):
    await store.extend(BEAT, [], lease=0.2)
    async with asyncio.timeout(60):
        while [beat.alive for beat in await other.workers()] != [False]:
            pass


async def test_a_sweeper_whose_clock_is_held_by_another_only_looks(store, other, server):
    await put(store, "a")
    await claim(store, lease=60)
    await other.expired(10)
    async with other._server._connection(urgent=True) as connection, connection.transaction():
        await connection.execute("SELECT 1 FROM redrive.outbox_clock FOR UPDATE")
        async with asyncio.timeout(60):
            assert await store.expired(10) == []
            assert await store.expired(10) == []


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


async def test_an_outage_longer_than_a_lease_takes_no_letter_from_a_living_worker(store, other):
    other._ticker = Ticker(manual=False, now=(now := Hands()))
    await other.expired(10)
    await put(store, "a")
    [held] = await claim(store, lease=60)
    now.at = 600.0  # the server was away so long, and the other process is the first to reach it
    assert await other.expired(10) == []
    now.at += 5.0
    assert await other.expired(10) == []
    assert await store.extend(BEAT, [held], lease=60) == []
    assert await store.settle([(held, DELIVERED)]) == (True,)


def test_a_tick_adds_at_most_a_third_of_the_lease_that_its_process_renews():
    ticker = Ticker(manual=False, now=(now := Hands()))
    ticker.heard(ticker.ask(), {"lease_us": 0, "moved": False})
    now.at = 100.0
    assert ticker.ask().passed == 20_000_000  # no beat yet: a third of the default lease
    assert ticker.ask(lease=6.0).passed == 2_000_000
    assert ticker.ask().passed == 2_000_000


@pytest.mark.parametrize("ticks", [(0.0, 0.0005), (0.0, 1.5), (0.0, 3.0, 3.1), (0.0,)])
async def test_processes_that_tick_several_times_in_a_row_do_not_hold_up_the_clock_of_leases(store, server, ticks):
    """Each of three processes ticks at these moments of its ten seconds; two of them die in the middle."""
    now = Hands()
    processes = [Ticker(manual=False, now=now) for _ in range(3)]

    async def tick(ticker: Ticker, at: float) -> int:
        now.at = at
        asked = ticker.ask()
        [heard] = await store._calls.ask(
            lambda connection, _again: store._calls.fetch(connection, "tick", asked.seen, asked.passed, None)
        )
        ticker.heard(asked, heard)
        return heard["lease_us"]

    began = await tick(processes[0], 0.0)
    rounds = [
        (turn * 10.0 + number * 3.3 + span, number) for turn in range(20) for number in range(3) for span in ticks
    ]
    alive = [(at, number) for at, number in sorted(rounds) if number == 2 or at < 100]
    stands = [((await tick(processes[number], at) - began) / 1e6, at) for at, number in alive]
    assert all(lease <= at + 1e-3 for lease, at in stands)
    assert stands[-1][0] >= 0.85 * stands[-1][1]
