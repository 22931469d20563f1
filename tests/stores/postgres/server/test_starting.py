"""A worker that starts while its server does: a wrong URL is told soon, a server that is coming is waited for."""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from tests.servers import postgres
from tests.stores.conftest import server_url
from tests.stores.samples import check_books

from redrive import Redrive
from redrive.errors import StoreUnavailable
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.server import connections

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.postgres import Postgres

pytestmark = pytest.mark.slow

REJECTS = 1  # what pg_isready says of a server that is there and takes nobody yet


@pytest.fixture
def own() -> Iterator[Postgres]:
    """A server of the test's own, which it may stop and start."""
    server_url()
    with postgres.running(18, **postgres.NO_DISK) as started:
        yield started


@pytest.fixture(autouse=True)
def impatient(monkeypatch) -> None:
    """A call is asked once: what is waited for nevertheless is waited for on purpose."""
    monkeypatch.setattr(connections, "PATIENCE", 0.0)


class Told(PostgresStore):
    """Tells when a heartbeat found no connections."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.away = asyncio.Event()

    async def extend(self, *arguments, **options):
        try:
            return await super().extend(*arguments, **options)
        except StoreUnavailable:
            self.away.set()
            raise


async def test_a_worker_whose_server_is_away_at_its_first_heartbeat_waits_for_it(own):
    store, done = Told(own.url), []
    app = Redrive("memory://", store=store, poll_seconds=0.05, lease_seconds=6)
    app.add_handler("order.created", lambda order: done.append(order["id"]))
    await app.enqueue("order.created", {"id": 17})
    await asyncio.to_thread(own.stop)
    running = asyncio.create_task(app.run(until_idle=True, signals=False))
    await asyncio.wait_for(store.away.wait(), 60)
    assert not running.done()
    await asyncio.to_thread(own.restart)
    assert await asyncio.wait_for(running, 60)
    assert done == [17]
    await check_books(app.store)
    await app.close()


async def test_a_worker_that_waits_for_its_server_can_be_stopped(own):
    store = Told(own.url)
    app = Redrive("memory://", store=store, lease_seconds=6)
    app.add_handler("order.created", lambda order: None)
    await app.open()
    await asyncio.to_thread(own.stop)
    running = asyncio.create_task(app.run(signals=False))
    await asyncio.wait_for(store.away.wait(), 60)
    app.stop()
    assert not await asyncio.wait_for(running, 60)
    await app.close()


async def test_a_server_that_says_that_it_is_starting_is_waited_for_until_it_has(own):
    _begin_and_never_finish(own)
    store = PostgresStore(own.url)
    opening = asyncio.create_task(store.open())
    await _until_refused(own)
    assert not opening.done()
    (own.folder / "data" / "standby.signal").unlink()
    await asyncio.to_thread(own.restart)
    await asyncio.wait_for(opening, 60)
    assert await store.queues() == []
    await store.close()


async def test_a_server_that_never_comes_is_given_up_in_the_end(own, monkeypatch):
    monkeypatch.setattr(connections, "STARTING", 0.2)
    _begin_and_never_finish(own)
    with pytest.raises(StoreUnavailable, match="cannot reach PostgreSQL"):
        await asyncio.wait_for(PostgresStore(own.url).open(), 60)


def _begin_and_never_finish(own: Postgres) -> None:
    """Start it as a standby that nobody may look at: all that it says is that it is not there yet."""
    own.stop()
    (own.folder / "data" / "standby.signal").touch()
    own.process = postgres._start(own.bin, own.folder, own.port, own.run, {"hot_standby": "off"})
    command = [own.tool("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(own.port), "-U", "postgres"]
    end = time.monotonic() + 60
    while subprocess.run(command, check=False).returncode != REJECTS:
        assert time.monotonic() < end, "the server does not even begin"
        time.sleep(0.02)
    (own.folder / "log").write_text("")


async def _until_refused(own: Postgres) -> None:
    """Wait until the server has told somebody that it is starting."""
    async with asyncio.timeout(60):
        while "FATAL:  the database system is" not in (own.folder / "log").read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
