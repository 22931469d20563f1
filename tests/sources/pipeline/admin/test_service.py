"""The admin service over real gRPC: the same verbs, a token, and errors that carry the way out."""

from __future__ import annotations

import grpc
import pytest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from redrive.errors import SettingsError, SourceError
from redrive.sources.pipeline.admin.admin_desk import AdminDesk
from redrive.sources.pipeline.admin.remote import RemoteDesk
from redrive.sources.pipeline.admin.service import AdminServer, check_address
from redrive.sources.pipeline.protos import admin_pb2 as messages

TOKEN = "a-token-of-the-operators"  # noqa: S105 - of this test alone


@pytest.fixture
async def served(scene):
    """The desk of a graph that no engine runs, served with a token."""
    graph = scene.graph({"id": "parse", "module": "127.0.0.1:1"})
    server = AdminServer(AdminDesk(lambda: graph, scene.kafka()), "127.0.0.1:0", token=TOKEN)
    await server.start()
    yield f"127.0.0.1:{server.port}"
    await server.stop()


async def test_operators_see_the_graph_and_its_nodes(served):
    desk = RemoteDesk(served, token=TOKEN)
    shown = (await desk.get_graph(messages.GetGraphRequest())).graph
    assert [(node.node_id, node.dlq_config.max_retries) for node in shown.nodes] == [("parse", 3)]
    (node,) = (await desk.list_nodes(messages.ListNodesRequest())).nodes
    assert (node.node_id, node.depth, node.dlq_depth) == ("parse", 0, 0)
    assert not node.HasField("documents_in")  # no engine counts
    assert node.state == messages.NODE_STATE_UNSPECIFIED
    await desk.close()


@pytest.mark.parametrize("token", ["", "another-token-of-nobody"])
async def test_without_the_right_token_nothing_is_answered(served, token):
    desk = RemoteDesk(served, token=token)
    with pytest.raises(SourceError, match="token is missing or wrong"):
        await desk.list_nodes(messages.ListNodesRequest())
    with pytest.raises(SourceError, match="token is missing or wrong"):
        _ = [each async for each in desk.replay(messages.ReplayRequest(node_id="parse"))]
    await desk.close()


async def test_a_refusal_says_why_and_what_to_do(served):
    desk = RemoteDesk(served, token=TOKEN)
    with pytest.raises(SourceError, match="which letters"):
        _ = [each async for each in desk.replay(messages.ReplayRequest(node_id="parse"))]
    with pytest.raises(SourceError, match=r"cannot pause: it needs a store.*redrive migrate"):
        await desk.pause(messages.PauseRequest(node_id="parse"))
    await desk.close()


async def test_no_engine_at_the_address_names_the_ways_out():
    desk = RemoteDesk("127.0.0.1:1")
    with pytest.raises(SourceError, match=r"no engine answers.*pipeline run.*--engine.*--graph"):
        await desk.get_graph(messages.GetGraphRequest())
    await desk.close()


async def test_other_tools_find_the_service_by_reflection(served):
    async with grpc.aio.insecure_channel(served) as channel:
        asked = ServerReflectionStub(channel).ServerReflectionInfo(
            iter([ServerReflectionRequest(list_services="")]), metadata=(("authorization", f"Bearer {TOKEN}"),)
        )
        names = [each.name async for answer in asked for each in answer.list_services_response.service]
    assert "redrive.pipeline.v1.PipelineAdminService" in names


@pytest.mark.parametrize("address", ["0.0.0.0:50050", "[::]:50050", "10.0.0.5:50050", "admin.example:50050"])
def test_an_address_that_others_reach_needs_a_token(address):
    with pytest.raises(SettingsError, match="which others reach"):
        check_address(address, "")
    check_address(address, TOKEN)


@pytest.mark.parametrize("address", ["127.0.0.1:50050", "[::1]:50050", "localhost:50050", "127.8.0.1:1"])
def test_loopback_needs_none(address):
    check_address(address, "")


def test_a_short_token_is_refused():
    with pytest.raises(SettingsError, match="at least 16 characters"):
        check_address("127.0.0.1:50050", "short")
