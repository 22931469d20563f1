"""Connections that die without a word are noticed by pings, long before the deadline of a call."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.sources.pipeline.modules.scripted import ScriptedModule, passed_on
from tests.sources.pipeline.modules.test_client import REQUEST
from tests.sources.pipeline.scene import until

from redrive.sources.pipeline.engine.pipeline import address_of
from redrive.sources.pipeline.graph.reading import examine
from redrive.sources.pipeline.modules.client import ModuleAddress, ModuleClient
from redrive.sources.pipeline.modules.failures import Remedy, StepFailed

PING = 17  # bytes of the frame
PATIENT = [("grpc.http2.max_ping_strikes", 0)]  # a server that takes every ping


class Wire:
    """A way to *port* that passes bytes on, until it is told to swallow those of the connections that are open."""

    def __init__(self, port: int) -> None:
        self._port, self._tasks, self._dead = port, set(), set()
        self.pings = 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.target = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def go_dead(self):
        self._dead |= self._tasks

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(
                self._pass(reader, far_writer, task, self._count), self._pass(far_reader, writer, task)
            )
        for end in (writer, far_writer):
            end.transport.abort()
        self._tasks.discard(task)

    async def _pass(self, reader, writer, task, note=lambda _data: None):
        while data := await reader.read(65_536):
            note(data)
            if task not in self._dead:
                writer.write(data)
        raise ConnectionError

    def _count(self, data):
        self.pings += len(data) == PING


async def found_again(client):
    """Call until the dead connection has closed."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await client.process(REQUEST, timeout=60)
            except StepFailed:
                await asyncio.sleep(0.02)


async def test_a_call_on_a_connection_that_died_fails_at_the_next_ping_and_the_next_call_finds_the_module():
    begun = asyncio.Event()

    async def slow_at_first(request, _context):
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return passed_on(request)

    module = ScriptedModule(slow_at_first)
    await module.start(options=PATIENT)
    async with Wire(module.port) as wire:
        client = ModuleClient(ModuleAddress(target=wire.target, keepalive=0.2, ping_timeout=0.2))
        call = asyncio.create_task(client.process(REQUEST, timeout=300))
        await begun.wait()
        wire.go_dead()
        async with asyncio.timeout(60):
            with pytest.raises(StepFailed) as caught:
                await call
        assert await found_again(client)
        await client.close()
    await module.stop()
    assert (caught.value.trouble.remedy, caught.value.trouble.word) == (Remedy.RETRY, "UNAVAILABLE")
    assert "ping" in caught.value.trouble.text.lower()


async def test_pings_leave_a_call_that_is_merely_slow_alone():
    pinged = asyncio.Event()

    async def slow(request, _context):
        await pinged.wait()
        return passed_on(request)

    module = ScriptedModule(slow)
    await module.start(options=PATIENT)
    async with Wire(module.port) as wire:
        client = ModuleClient(ModuleAddress(target=wire.target, keepalive=0.05, ping_timeout=30))
        call = asyncio.create_task(client.process(REQUEST, timeout=60))
        await until(lambda: wire.pings >= 8)
        pinged.set()
        await call
        await client.close()
    await module.stop()
    assert len(module.calls) == 1


def test_a_node_says_how_often_its_connections_are_pinged():
    graph = examine('{env: dev, nodes: [{id: a, module: "localhost:1", keepalive: 15s}]}').graph
    assert address_of(graph.nodes[0]).keepalive == 15
