"""
An application behind PgBouncer in transaction mode; the contract suite runs there too, as `pgbouncer`.

The pooler has fewer connections to the server than its clients have to it, and hands them on
after every transaction: whatever outlives one would be somebody else's.
"""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session
from tests.servers.postgres import shared
from tests.stores.conftest import pooler_url
from tests.stores.samples import check_books, draft

from redrive import Redrive, RetryPolicy
from redrive.errors import SettingsError
from redrive.wiring import open_store

pytestmark = pytest.mark.usefixtures("store")  # empties the schema, and checks the books afterwards


@pytest.fixture
def pooled() -> str:
    return f"{pooler_url()}?pooled=yes"


@pytest.fixture
def direct(pooled) -> str:
    return f"{pooled}&listen=127.0.0.1:{shared().port}"


@pytest.mark.parametrize("way", ["pooled", "direct"])
async def test_letters_run_fail_and_are_replayed_behind_a_pooler(request, way):
    app, healed = Redrive(request.getfixturevalue(way), poll_seconds=0.05), asyncio.Event()
    done: list[int] = []

    @app.handler("order.created", policy=RetryPolicy.NEVER)
    async def on_order(order: dict) -> None:
        if order["id"] % 10 == 0 and not healed.is_set():
            raise ConnectionError("the bank does not answer")
        done.append(order["id"])

    await app.enqueue_many([app.draft("order.created", {"id": n}) for n in range(100)])
    await app.run(until_idle=True, signals=False)
    assert (await app.desk.stats()).books["failed"] == 10
    healed.set()
    assert (await app.desk.replay(query="status:failed", reason="the bank is back")).acted == 10
    await app.run(until_idle=True, signals=False)
    assert sorted(done) == list(range(100))
    await check_books(app.store)
    await app.close()


async def test_more_workers_than_the_pooler_has_connections_run_every_letter_once(pooled):
    apps, runs = [Redrive(pooled, poll_seconds=0.05) for _ in range(6)], []
    for app in apps:
        app.add_handler("order.created", lambda order: runs.append(order["id"]))
    await apps[0].enqueue_many([apps[0].draft("order.created", {"id": n}) for n in range(600)])
    await asyncio.gather(*(app.run(until_idle=True, signals=False) for app in apps))
    assert sorted(runs) == list(range(600))
    for app in apps:
        await app.close()


async def test_a_worker_that_listens_past_the_pooler_is_woken_by_a_put_through_it(pooled, direct):
    ears, mouth = open_store(direct), open_store(pooled)
    await ears.open()
    await mouth.open()
    await asyncio.wait_for(ears._wire.listening.wait(), 60)
    woken = asyncio.create_task(ears.wait(60))
    await asyncio.sleep(0)
    await mouth.put([draft("a")])
    assert await woken
    await ears.close()
    await mouth.close()


@pytest.mark.parametrize("way", ["session", "connection"])
async def test_a_commit_through_the_pooler_wakes_a_worker_that_listens_past_it(pooled, direct, way):
    """A session tells after its commit, by the waker's own connection; a connection tells inside."""
    ears, app = open_store(direct), Redrive(pooled)
    await ears.open()
    await asyncio.wait_for(ears._wire.listening.wait(), 60)
    woken = asyncio.create_task(ears.wait(60))
    await asyncio.sleep(0)
    await asyncio.to_thread(_enqueue, app, way)
    assert await woken
    await ears.close()
    await app.close()


def _enqueue(app: Redrive, way: str) -> None:
    engine = sa.create_engine(
        pooler_url().replace("postgresql:", "postgresql+psycopg:"),
        poolclass=sa.NullPool,
        connect_args={"prepare_threshold": None},
    )
    if way == "session":
        with Session(engine) as session, session.begin():
            app.outbox(session).enqueue("order.created", {"id": 17})
    else:
        with engine.begin() as connection:
            app.outbox(connection).enqueue("order.created", {"id": 17})


@pytest.mark.parametrize("listen", ["no", "127.0.0.1:1"], ids=["listens not", "cannot listen"])
async def test_a_worker_that_hears_nothing_behind_a_pooler_polls(pooled, listen):
    app, done = Redrive(f"{pooled}&listen={listen}", poll_seconds=0.05), asyncio.Event()

    @app.handler("order.created")
    async def on_order(order: dict) -> None:
        done.set()

    running = asyncio.create_task(app.run(signals=False))
    await asyncio.to_thread(_enqueue, app, "connection")
    await asyncio.wait_for(done.wait(), 60)
    app.stop()
    await asyncio.wait_for(running, 60)
    await app.close()


async def test_nobody_listens_through_a_pooler(pooled):
    store = open_store(f"{pooled}&listen=yes")
    await store.open()
    assert store._wire._direct is None
    await store.close()


def test_a_place_to_listen_that_is_none_is_refused():
    with pytest.raises(SettingsError, match="HOST:PORT"):
        open_store("postgresql://u@h/d?pooled=yes&listen=there")


def test_the_place_to_listen_keeps_user_password_and_database():
    store = open_store("postgresql://u:p@pooler:6432/d?pooled=yes&listen=db.example:5432&sslmode=require")
    assert store._wire._direct.dsn == "postgresql://u:p@db.example:5432/d?sslmode=require"
