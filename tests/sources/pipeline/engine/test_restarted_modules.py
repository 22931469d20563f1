"""A module is deployed again while documents are under way: none of them goes to quarantine or to the DLQ."""

from __future__ import annotations

import asyncio

from tests.servers.ports import free_port
from tests.sources.pipeline.scene import running, until

from redrive.sources.pipeline import module
from redrive.sources.pipeline.protos.document_pb2 import PipeDoc  # noqa: TC001 - read at run time

DOCUMENTS = 300


async def test_a_module_that_is_deployed_again_under_load_costs_no_document_its_way(scene):
    begun = 0

    async def slow(document: PipeDoc) -> PipeDoc:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0.005)
        return document

    address = f"localhost:{free_port()}"
    patient = {"max_retries": 1000, "initial_backoff": 0.05, "max_backoff": 0.05}
    graph = scene.graph({"id": "parse", "module": address, "concurrency": 64, "dlq": patient})
    async with running(scene.pipeline(graph)):
        scene.send(graph, DOCUMENTS)
        for part in (1, 2):
            async with module(slow).listening(address):
                await until(lambda part=part: begun >= part * DOCUMENTS // 3)
        async with module(slow).listening(address):
            await until(lambda: scene.committed("parse") == DOCUMENTS)
    assert scene.quarantined("parse") == scene.dead("parse") == []
    assert len({done.stream_id for done in scene.done()}) == DOCUMENTS
