"""Failover to a synchronous standby, by a URL with two hosts: what was accepted is there, work goes on, leases hold."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import pytest
from tests.servers import jumping, postgres
from tests.stores.samples import DELIVERED, KIND, WORKER, claim, names, put
from tests.torture import workload
from tests.torture.checker import judge
from tests.torture.history import History

from redrive.errors import StoreError, StoreUnavailable
from redrive.stores.contract import WorkerBeat
from redrive.stores.postgres import PostgresStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.torture
BEAT = WorkerBeat(name=WORKER, kinds=(KIND,), in_flight=1)


@pytest.fixture
def standby(pg: postgres.Postgres) -> Iterator[postgres.Postgres]:
    """A standby of *pg*, which waits for it from now on before it says that anything is committed."""
    copy = postgres.copy_of(pg)
    _wait_for(pg)
    yield copy
    postgres.discard(copy)


def _wait_for(pg: postgres.Postgres) -> None:
    """Let *pg* wait for its standby from now on."""
    pg.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    pg.psql("SELECT pg_reload_conf()")
    assert workload.wait_for(
        lambda: pg.psql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1", 120
    )


def both(pg: postgres.Postgres, standby: postgres.Postgres) -> str:
    hosts = f"127.0.0.1:{pg.port},127.0.0.1:{standby.port}"
    return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"


async def _fail_over(pg: postgres.Postgres, standby: postgres.Postgres) -> None:
    """The primary is killed, and the standby, which waits for no other, takes over."""
    await asyncio.to_thread(pg.kill)
    await asyncio.sleep(0.2)
    await asyncio.to_thread(standby.psql, "SELECT pg_promote(true, 30)")
    standby.psql("ALTER SYSTEM SET synchronous_standby_names = ''")
    standby.psql("SELECT pg_reload_conf()")


async def test_a_standby_is_refused_at_the_start(standby: postgres.Postgres):
    with pytest.raises(StoreUnavailable, match="read replica"):
        await PostgresStore(standby.url).open()


async def test_what_was_accepted_survives_the_primary(
    pg: postgres.Postgres, standby: postgres.Postgres, tmp_path: Path
):
    workload.quiet()
    app, _ = workload.build(tmp_path, url=both(pg, standby))
    await app.open()
    working = asyncio.create_task(app.run(signals=False))
    over, enough, accepted = asyncio.Event(), asyncio.Event(), 0

    async def produce() -> None:
        nonlocal accepted
        while not over.is_set():
            with contextlib.suppress(StoreError):
                accepted += len(await app.enqueue_many([app.draft("ok", {}) for _ in range(5)]))
            if accepted >= 150:
                enough.set()
            await asyncio.sleep(0.005)

    producing = asyncio.create_task(produce())
    await asyncio.wait_for(enough.wait(), 180)
    await _fail_over(pg, standby)
    async with asyncio.timeout(180):
        while True:
            with contextlib.suppress(StoreUnavailable):
                await app.enqueue("ok", {"after": "the failover"})
                break
    await asyncio.sleep(0.5)
    over.set()
    await producing
    app.stop()
    await working
    await app.run(until_idle=True, signals=False)
    await app.close()
    verdict = await asyncio.to_thread(judge, History(tmp_path / "history"), standby.url, floor=100)
    assert verdict.ok, verdict
    print(verdict)


# ---------------------------------------------------------------------- a standby with another clock

HOUR = 3_600.0
OFF = "SELECT round(extract(epoch FROM clock_timestamp() - pg_catalog.clock_timestamp()))"


@pytest.fixture(params=[HOUR, -HOUR], ids=["an hour ahead", "an hour behind"])
def skewed(pg: postgres.Postgres, request: pytest.FixtureRequest) -> Iterator[postgres.Postgres]:
    """A standby whose clock is an hour off that of the primary."""
    jumping.prepare(pg)
    copy = postgres.copy_of(pg, **jumping.skew(request.param))
    _wait_for(pg)
    assert (float(pg.psql(OFF)), float(copy.psql(OFF))) == (0.0, request.param)
    yield copy
    postgres.discard(copy)


@pytest.fixture
async def stores(
    pg: postgres.Postgres, skewed: postgres.Postgres, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[PostgresStore]]:
    """Two processes that know both servers, and wait for one of them to answer."""
    monkeypatch.setattr("redrive.stores.postgres.server.connections.PATIENCE", 120.0)
    opened = [PostgresStore(both(pg, skewed), listen=False) for _ in range(2)]
    for each in opened:
        await each.open()
    yield opened
    for each in opened:
        await each.close()


async def test_a_standby_with_another_clock_takes_no_letter_from_a_living_worker(pg, skewed, stores):
    store, other = stores
    await put(store, "a")
    [held] = await claim(store, lease=60)
    assert await other.expired(10) == []
    await _fail_over(pg, skewed)
    assert float(skewed.psql(OFF)) != 0.0
    for _ in range(5):
        assert await other.expired(10) == await store.expired(10) == []
        assert await store.extend(BEAT, [held], lease=60) == []
        assert [beat.alive for beat in await other.workers()] == [True]
    assert await store.settle([(held, DELIVERED)]) == (True,)


async def test_a_standby_with_another_clock_does_not_keep_a_dead_workers_letter(pg, skewed, stores):
    store, other = stores
    await put(store, "a")
    await other.expired(10)
    await claim(store, lease=5)
    await _fail_over(pg, skewed)
    async with asyncio.timeout(120):  # by the wall clock it would be an hour
        while not (found := await other.expired(10)):
            pass
    assert names(found) == ["a"]


async def test_a_claim_on_a_standby_with_another_clock_lasts_its_lease(pg, skewed, stores):
    store, other = stores
    await other.extend(BEAT, [], lease=3)  # however long the failover takes, it counts as a third of this at most
    await _fail_over(pg, skewed)
    await put(store, "a")  # one of before may be due an hour later: due times go by the server's clock
    began = time.monotonic()
    assert await claim(store, lease=3)
    async with asyncio.timeout(120):
        while not await other.expired(10):
            pass
    assert time.monotonic() - began >= 3 * 2 / 3  # a third of a lease is what the wall clock may say
