"""The broker goes away while documents are in calls: both modes say so, go on by themselves and lose nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, closing

import pytest
from tests.servers.kafka import Broker
from tests.sources.kafka.needed import needed
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import Scene, running, until

from redrive.sources.kafka.control import transactions

DOCUMENTS = 30
IN_CALLS = 5  # documents that are in a call when the broker goes


@pytest.fixture
def own():  # the shared one must not be killed
    with needed(), Broker() as mine:
        yield mine


class Line:
    """A graph of two nodes in one mode, whose first module answers a few documents and then waits."""

    def __init__(self, broker, name: str, *, exactly_once: bool) -> None:
        self.scene, self.exactly_once = Scene(broker.bootstrap, name), exactly_once
        self.go_on, self.waiting = asyncio.Event(), 0

    async def slow(self, request, _context):
        if int(request.document.doc_id.rpartition("-")[2]) >= DOCUMENTS - IN_CALLS:
            self.waiting += 1
            await self.go_on.wait()
        return passed_on(request)

    async def begin(self, stack: AsyncExitStack) -> None:
        slow, quick = await stack.enter_async_context(serving(self.slow, lambda r, _c: passed_on(r)))
        nodes = [{"id": "parse", "module": slow.target}, {"id": "index", "module": quick.target}]
        self.graph = self.scene.graph(*nodes, edges=[("parse", "index")])
        self.pipeline = self.scene.pipeline(self.graph, exactly_once=self.exactly_once)
        await stack.enter_async_context(running(self.pipeline))
        self.scene.send(self.graph, DOCUMENTS)
        await until(lambda: self.waiting == IN_CALLS and len(self.scene.done()) == DOCUMENTS - IN_CALLS)

    def colours(self) -> set[str]:
        return {health.status for health in self.pipeline.health.values()}

    def ends(self) -> Counter[str]:
        return Counter(done.stream_id for done in self.scene.done())


@pytest.mark.slow
async def test_an_engine_without_its_broker_is_red_says_why_and_goes_on_by_itself(own, caplog, monkeypatch):
    monkeypatch.setattr(transactions, "_LIMIT", 3.0)  # a step of a transaction is given up that soon
    modes = {"at-least-once": False, "exactly-once": True}
    lines = [Line(own, name, exactly_once=exactly_once) for name, exactly_once in modes.items()]
    everything = {f"stream-{n}" for n in range(DOCUMENTS)}
    async with AsyncExitStack() as stack:
        for line in lines:
            stack.enter_context(closing(line.scene))
            await line.begin(stack)
        own.kill()
        await until(lambda: all(line.colours() == {"red"} for line in lines))
        for line in lines:
            line.go_on.set()  # their answers have no topic to go to
            reasons = line.pipeline.health["parse"].reasons
            assert any(f"no broker answers at {own.bootstrap}" in reason for reason in reasons)
        own.launch()
        await asyncio.to_thread(own.wait)
        await until(lambda: all(set(line.ends()) == everything for line in lines))
        await until(lambda: all(line.colours() == {"green"} for line in lines))
        for line in lines:
            assert line.scene.committed("parse") >= DOCUMENTS  # a transaction has a marker in the log, too
            assert [line.scene.dead(node) + line.scene.quarantined(node) for node in ("parse", "index")] == [[], []]
    assert set(lines[1].ends().values()) == {1}  # exactly once
    assert "goes on by itself once a broker answers" in caplog.text
    assert "a broker answers again" in caplog.text
