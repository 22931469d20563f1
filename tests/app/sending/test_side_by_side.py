"""`app` and `app.sync` in one process, as the `async def` and `def` endpoints of one web application use them."""

from __future__ import annotations

import asyncio

import pytest
from tests.engine.starting import PATIENCE

from redrive import Redrive


def _url(kind: str, folder) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder}/redrive.db"
    pytest.importorskip("asyncpg")
    from tests.stores.conftest import server_url  # noqa: PLC0415 - only where there is a driver

    return f"{server_url()}?schema=side_by_side"


@pytest.fixture(params=["sqlite", "postgres"])
async def app(request, folder):
    app = Redrive(_url(request.param, folder))
    yield app
    await app.close()
    await asyncio.to_thread(app.sync.close)


@pytest.mark.parametrize("first", ["awaited", "blocking"])
async def test_endpoints_of_both_kinds_enqueue_and_look(app, first):
    async def blocking() -> str:
        return (await asyncio.to_thread(app.sync.enqueue, "order.created", {"by": "blocking"})).id

    async def awaited() -> str:
        return (await app.enqueue("order.created", {"by": "awaited"})).id

    order = [awaited, blocking] if first == "awaited" else [blocking, awaited]
    ids = [await asyncio.wait_for(endpoint(), PATIENCE) for endpoint in order * 2]
    ids += await asyncio.wait_for(asyncio.gather(*(endpoint() for endpoint in order * 5)), PATIENCE)
    assert len(set(ids)) == 14
    shown = [await app.desk.show(ids[0]), await asyncio.to_thread(app.sync.desk.show, ids[1])]
    assert [letter.id for letter in shown] == ids[:2]


async def test_what_a_blocking_endpoint_enqueues_an_awaited_worker_handles(app):
    handled = []

    @app.handler("order.shipped")
    async def ship(order: dict) -> None:
        handled.append(order["number"])

    await asyncio.to_thread(app.sync.enqueue, "order.shipped", {"number": 17})
    await asyncio.wait_for(app.run(until_idle=True, signals=False), PATIENCE)
    assert handled == [17]
