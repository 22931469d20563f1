"""Accepted means on disk: what a server has switched off is switched on, refused, or warned of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest
from tests.servers.postgres import running
from tests.stores.samples import DELIVERED, QUEUE, claim, put

from redrive.core.query import parse
from redrive.errors import StoreUnavailable
from redrive.stores.postgres import PostgresStore
from redrive.wiring import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.postgres import Postgres

pytestmark = pytest.mark.slow
NO_FSYNC = "fsync is off on this server: letters that were accepted do not survive a power cut"


@pytest.fixture(scope="module")
def own() -> Iterator[Postgres]:
    """A server of its own, with nothing switched off."""
    with running(18) as server:
        yield server


async def opened(url: str) -> PostgresStore:
    store = PostgresStore(url, listen=False)
    await store.open()
    return store


async def test_letters_accepted_with_synchronous_commit_off_survive_kill_9_of_the_server(own):
    own.psql("CREATE ROLE hasty LOGIN SUPERUSER; ALTER ROLE hasty SET synchronous_commit = off")
    store = await opened(own.url.replace("postgres@", "hasty@"))
    for n in range(300):
        await put(store, f"letter {n}")
    own.kill()
    own.restart()
    assert await store.count(parse("status:pending")) == 300
    await store.close()


async def test_outcomes_and_acts_confirmed_with_synchronous_commit_off_survive_kill_9_of_the_server(own):
    own.psql("ALTER DATABASE postgres SET synchronous_commit = off")
    store = PostgresStore(own.url, schema="acts", listen=False)
    await store.open()
    await put(store, "a", "b")
    first, second = await claim(store, limit=2)
    await store.settle([(first, DELIVERED)])
    own.kill()
    own.restart()
    await store.pause(QUEUE, paused=True, by="ana", reason="")
    own.kill()
    own.restart()
    assert await store.count(parse("status:delivered")) == 1
    assert [state.paused for state in await store.queues() if state.spec.name == QUEUE] == [True]
    assert await store.settle([(second, DELIVERED)]) == (True,)
    await store.close()
    own.psql("ALTER DATABASE postgres RESET synchronous_commit")


@pytest.mark.parametrize(("given", "used"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
async def test_a_setting_that_is_strong_enough_is_left_as_it_is(own, given, used):
    await (await opened(own.url)).close()
    connection = await asyncpg.connect(own.url, server_settings={"synchronous_commit": given})
    async with connection.transaction():
        await connection.execute("SELECT redrive.outbox_durable()")
        assert await connection.fetchval("SHOW synchronous_commit") == used
    assert await connection.fetchval("SHOW synchronous_commit") == given
    await connection.close()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_a_server_that_does_not_write_to_disk_is_refused_unless_somebody_accepts_that(own, setting, caplog):
    own.restart(**{setting: "off"})
    with pytest.raises(StoreUnavailable, match=rf"{setting} is off.*redrive\.durability=unchecked"):
        await opened(own.url)
    assert not caplog.records
    accepted = open_store(f"{own.url}?redrive.durability=unchecked")
    await accepted.open()
    await accepted.close()
    own.psql("ALTER DATABASE postgres SET redrive.durability = 'unchecked'")
    await (await opened(own.url)).close()
    own.psql("ALTER DATABASE postgres RESET redrive.durability")
    assert [record.message.partition(" ")[0] for record in caplog.records] == [setting, setting]
    own.restart()


async def test_settings_that_the_user_may_not_see_are_warned_of(own, caplog):
    own.psql("CREATE SCHEMA hidden; CREATE VIEW hidden.pg_settings AS SELECT * FROM pg_catalog.pg_settings WHERE false")
    store = await opened(f"{own.url}?search_path=hidden,pg_catalog,public")
    await store.close()
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        "cannot see whether fsync is on", "cannot see whether full_page_writes is on",
    ]  # fmt: skip


async def test_a_replica_is_refused(own):
    (own.folder / "data" / "standby.signal").touch()
    own.restart()
    with pytest.raises(StoreUnavailable, match="read replica"):
        await opened(own.url)
    (own.folder / "data" / "standby.signal").unlink()
    own.restart()


@pytest.mark.parametrize(("query", "name"), [("", "redrive in "), ("?application_name=orders", "orders")])
async def test_an_administrator_sees_whose_connections_they_are(own, query, name):
    store = open_store(f"{own.url}{query}")
    await store.open()
    names = own.psql("SELECT DISTINCT application_name FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    assert [line for line in names.splitlines() if line.startswith(name)]
    await store.close()
