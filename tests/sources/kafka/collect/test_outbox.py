"""The outbox in PostgreSQL and the broker joined: what was committed is published, and delivered on its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.stores.conftest import server_url
from tests.stores.samples import check_books

from redrive import Redrive, Status
from redrive.sources.kafka import KafkaSender

if TYPE_CHECKING:
    from tests.sources.kafka.stage import Stage

ORDERS = "CREATE SCHEMA IF NOT EXISTS shop; CREATE TABLE IF NOT EXISTS shop.orders (id text); TRUNCATE shop.orders"


class Undo(Exception):
    """The user changes their mind."""


class Shop:
    """An application with a database of its own, whose events go to a topic."""

    def __init__(self, app: Redrive, connection, stage: Stage) -> None:
        self.app, self.connection, self._stage = app, connection, stage

    async def pay(self, order: str, *, undo: bool = False) -> str:
        """Write an order and its event in one transaction; return the letter's id."""
        async with self.connection.transaction():
            await self.connection.execute("INSERT INTO shop.orders VALUES ($1)", order)
            receipt = await self.app.outbox(self.connection).enqueue("order.paid", {"order": order}, key=order)
            if undo:
                raise Undo
        return receipt.id

    async def relay(self) -> None:
        """Publish what is there, as a worker does."""
        sender = KafkaSender(self._stage.kafka(), topic=self._stage.topic)
        self.app.publisher("order.paid", sender)
        try:
            assert await self.app.run(until_idle=True, signals=False)
        finally:
            sender.close()

    async def letter(self, letter_id: str):
        return await self.app.store.get(letter_id)


@pytest.fixture
async def shop(stage, tmp_path):
    url = server_url()
    import asyncpg  # noqa: PLC0415 - only where there is a driver
    from tests.stores.fresh import FreshStore  # noqa: PLC0415

    connection = await asyncpg.connect(url)
    await connection.execute(ORDERS)
    async with Redrive("memory://", store=FreshStore(url, tmp_path, None), sweep_seconds=0.1) as app:
        yield Shop(app, connection, stage)
        await check_books(app.store)
    await connection.close()


async def test_an_event_is_published_if_its_transaction_commits_and_delivered_on_the_brokers_report(stage, shop):
    stage.create(partitions=2)
    paid = [await shop.pay(f"order-{n}") for n in range(5)]
    with pytest.raises(Undo):
        await shop.pay("order-that-was-never-paid", undo=True)
    assert {(await shop.letter(each)).status for each in paid} == {Status.PENDING}
    assert stage.read() == []

    await shop.relay()

    assert {(await shop.letter(each)).status for each in paid} == {Status.DELIVERED}
    published = {dict(each.headers())["x-redrive-letter"].decode(): each for each in stage.read()}
    assert set(published) == set(paid)
    assert len(stage.read()) == 5
    for n, each in enumerate(paid):
        message = published[each]
        assert (message.key(), msgspec.json.decode(message.value())) == (b"order-%d" % n, {"order": f"order-{n}"})


async def test_an_event_that_the_broker_refuses_is_not_delivered_and_holds_up_no_other(stage, shop):
    stage.create(max_message_bytes="1000")
    long, short = await shop.pay("order-" + "x" * 2000), await shop.pay("order-1")

    await shop.relay()

    refused = await shop.letter(long)
    assert (refused.status, (await shop.letter(short)).status) == (Status.FAILED, Status.DELIVERED)
    assert "did not take letter" in refused.last_error
    assert [message.key() for message in stage.read()] == [b"order-1"]
