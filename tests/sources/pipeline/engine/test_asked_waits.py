"""How long a module asks to wait, and that it asks for no further call: the engine does so, whatever its node says."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

ASKED = 0.3  # seconds; a node of these tests waits at most 0.01 by itself


def retry_info():
    status = Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message="busy")
    status.details.add().Pack(RetryInfo(retry_delay=Duration(nanos=int(ASKED * 1e9))))
    return (("grpc-status-details-bin", status.SerializeToString()),)


WAYS = {"pushback": (("grpc-retry-pushback-ms", str(int(ASKED * 1000))),), "RetryInfo": retry_info()}


def two_nodes(scene, good, asking, transport):
    nodes = [{"id": "parse", "module": good.target}, {"id": "embed", "module": asking.target}]
    return scene.graph(*nodes, edges=[("parse", "embed", {"transport": transport})])


@pytest.mark.parametrize("transport", ["kafka", "grpc"])
@pytest.mark.parametrize("way", WAYS)
async def test_the_next_call_comes_no_earlier_than_the_module_asks(scene, way, transport):
    times = []

    async def busy_once(request, context):
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "busy", WAYS[way])
        return passed_on(request)

    async with serving(lambda request, _context: passed_on(request), busy_once) as (good, asking):
        graph = two_nodes(scene, good, asking, transport)
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: len(scene.done()) == 1)
    assert times[1] - times[0] >= ASKED - 0.01
    assert [step.calls for step in scene.done()[0].history] == [1, 2]


@pytest.mark.parametrize("transport", ["kafka", "grpc"])
async def test_a_module_that_asks_for_no_further_call_gets_none_and_the_document_is_a_dead_letter(scene, transport):
    async def never(_request, context):
        await context.abort(grpc.StatusCode.UNAVAILABLE, "do not come back", (("grpc-retry-pushback-ms", "-1"),))

    async with serving(lambda request, _context: passed_on(request), never) as (good, asking):
        graph = two_nodes(scene, good, asking, transport)
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: len(scene.dead("embed")) == 1)
    [letter] = scene.dead("embed")
    assert (letter.error_type, letter.retry_count, len(asking.calls)) == ("UNAVAILABLE", 1, 1)
