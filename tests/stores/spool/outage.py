"""Load on an application with a spool while its PostgreSQL is away; used by a test and by the long fault runs."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from typing import Any, NamedTuple

from redrive import Redrive

KEYS = 20  # order keys, each with a sender of its own


class Outage(NamedTuple):
    accepted: int
    spooled: int
    rate: float  # letters that were accepted in a second, from the end of the server to its return
    health: str  # at the end of the outage
    seconds: float  # from the return of the server until nothing waited
    problems: list[str]


class Senders:
    """Send *rate* letters a second; each sender waits for its receipt, and then makes up for lost time."""

    def __init__(self, app: Redrive, rate: float) -> None:
        self._app, self._every, self._loop = app, KEYS / rate, asyncio.get_running_loop()
        self.sent: defaultdict[str, list[str]] = defaultdict(list)
        self.spooled = 0
        self.ended = asyncio.Event()

    async def send(self, key: str) -> None:
        due = self._loop.time()
        for n in itertools.count():
            receipt = await self._app.enqueue("mail", n, queue="lane", key=key)
            self.sent[key].append(receipt.id)
            self.spooled += receipt.spooled
            due += self._every
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            if self.ended.is_set():
                return

    @property
    def total(self) -> int:
        return sum(map(len, self.sent.values()))


async def through_an_outage(server: Any, folder: Any, *, rate: float, away: float) -> Outage:
    """Send while *server* goes away for *away* seconds and comes back; compare what was sent with what arrived."""
    app = Redrive(server.url, spool=str(folder / "spool.db"), spool_limit=1_000_000)
    app.queue("lane", ordered=True)
    await app.open()
    senders, loop = Senders(app, rate), asyncio.get_running_loop()
    tasks = [asyncio.create_task(senders.send(f"k{n}")) for n in range(KEYS)]
    await asyncio.to_thread(server.stop)
    began, before = loop.time(), senders.total
    await asyncio.sleep(away)
    reached = (senders.total - before) / (loop.time() - began)
    health = (await app.store.spooled()).health
    await asyncio.to_thread(server.restart)  # they go on sending meanwhile, and while what waits is forwarded
    back = loop.time()
    await asyncio.sleep(1.0)
    senders.ended.set()
    await asyncio.gather(*tasks)
    async with asyncio.timeout(60 + away):
        while (await app.store.spooled()).waiting:
            await app.store.stepped()
    seconds = loop.time() - back
    await app.close()
    return Outage(senders.total, senders.spooled, reached, health, seconds, _compared(server, senders.sent))


def _compared(server: Any, sent: dict[str, list[str]]) -> list[str]:
    arrived: defaultdict[str, list[str]] = defaultdict(list)
    for row in server.psql("SELECT key || ' ' || id FROM redrive.outbox ORDER BY seq").splitlines():
        key, _, letter = row.partition(" ")
        arrived[key].append(letter)
    return [
        f"{key}: {len(sent[key])} were accepted, {len(arrived[key])} arrived, in another order or number"
        for key in sorted({*sent, *arrived})
        if sent[key] != arrived[key]
    ]
