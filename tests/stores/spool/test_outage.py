"""A real PostgreSQL that goes away and comes back under load."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from tests.servers.postgres import Missing, start
from tests.stores.conftest import server_url

from redrive import Redrive

pytest.importorskip("asyncpg")
RATE, AWAY, KEYS = 500, 10.0, 20  # letters a second, seconds, order keys


@pytest.fixture
def server():
    server_url()  # skips, or fails in CI, where there is none
    try:
        own = start(18)
    except Missing as missing:
        pytest.skip(str(missing))
    yield own
    own.stop()


async def test_letters_that_are_enqueued_while_postgresql_is_away_arrive_once_and_in_order(server, tmp_path):
    app = Redrive(server.url, spool=str(tmp_path / "spool.db"))
    app.queue("lane", ordered=True)
    await app.open()
    loop = asyncio.get_running_loop()
    sent: defaultdict[str, list[str]] = defaultdict(list)
    spooled = 0

    async def send(key: str, end: float) -> None:
        nonlocal spooled
        n, due = 0, loop.time()
        while loop.time() < end:
            receipt = await app.enqueue("mail", n, queue="lane", key=key)
            sent[key].append(receipt.id)
            spooled += receipt.spooled
            n, due = n + 1, due + KEYS / RATE
            await asyncio.sleep(max(0.0, due - loop.time()))

    async with asyncio.TaskGroup() as group:
        for n in range(KEYS):
            group.create_task(send(f"k{n}", loop.time() + AWAY + 1))
        await asyncio.to_thread(server.stop)
        await asyncio.sleep(AWAY)
        assert "waiting" in (await app.store.spooled()).health
    await asyncio.to_thread(server.restart)
    async with asyncio.timeout(60):
        while (await app.store.spooled()).waiting:  # noqa: ASYNC110 - another task forwards
            await asyncio.sleep(0.05)

    total = sum(map(len, sent.values()))
    assert total > RATE * AWAY * 0.4  # the first of each key waits until the store has given up on the server
    assert spooled > total / 2
    rows = server.psql("SELECT key || ' ' || id FROM redrive.outbox ORDER BY seq").splitlines()
    arrived: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        key, _, letter = row.partition(" ")
        arrived[key].append(letter)
    assert arrived == sent
    await app.close()
