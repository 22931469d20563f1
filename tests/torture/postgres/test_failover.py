"""Failover to a synchronous standby, by a URL with two hosts: what was accepted is there, and work goes on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from tests.servers import postgres
from tests.torture import workload
from tests.torture.checker import judge
from tests.torture.history import History

from redrive.errors import StoreError, StoreUnavailable
from redrive.stores.postgres import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.torture


@pytest.fixture
def standby(pg: postgres.Postgres) -> Iterator[postgres.Postgres]:
    """A standby of *pg*, which waits for it from now on before it says that anything is committed."""
    copy = postgres.copy_of(pg)
    pg.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    pg.psql("SELECT pg_reload_conf()")
    assert workload.wait_for(
        lambda: pg.psql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1", 120
    )
    yield copy
    postgres.discard(copy)


def both(pg: postgres.Postgres, standby: postgres.Postgres) -> str:
    hosts = f"127.0.0.1:{pg.port},127.0.0.1:{standby.port}"
    return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"


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
    await asyncio.to_thread(pg.kill)
    await asyncio.sleep(0.2)
    await asyncio.to_thread(standby.psql, "SELECT pg_promote(true, 30)")
    standby.psql("ALTER SYSTEM SET synchronous_standby_names = ''")
    standby.psql("SELECT pg_reload_conf()")
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
