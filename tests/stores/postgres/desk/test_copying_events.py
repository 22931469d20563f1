"""Subscriptions go along where the other store has some, too."""

from __future__ import annotations

from uuid import uuid4

import pytest
from tests.stores.conftest import server_url
from tests.stores.samples import draft, put

from redrive.desk.act.copy import copy
from redrive.stores.contract import Subscription
from redrive.stores.memory import MemoryStore
from redrive.stores.postgres import PostgresStore

SUBSCRIBED = [Subscription(event="order.paid", handler="mailer"), Subscription(event="order.paid", handler="stock")]


@pytest.fixture
async def source():
    store = PostgresStore(server_url(), schema=f"from_{uuid4().hex[:8]}")
    await store.open()
    for each in SUBSCRIBED:
        await store.subscribe(each, by="ada")
    await put(store, draft("a", kind="order.paid"))
    yield store
    await store.close()


async def test_between_two_schemas_subscriptions_are_copied(source):
    target = PostgresStore(server_url(), schema=f"to_{uuid4().hex[:8]}")
    await target.open()
    try:
        report = await copy(source, target, by="ada", names=("from", "to"))
        assert (report.complete, report.notes) == (True, [])
        assert await target.subscriptions() == SUBSCRIBED
        [spread] = [each for each in await target.broadcast() or [] if each.events]
        assert (spread.kind, spread.events) == ("order.paid", 1)
    finally:
        await target.close()


async def test_where_there_are_none_it_is_said_that_they_stay_behind(source):
    report = await copy(source, MemoryStore(), by="ada", names=("from", "to"))
    assert report.notes == [
        "2 subscriptions stay behind: the target has none, and events wait there for a worker",
    ]
