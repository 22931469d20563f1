"""Defects of an earlier engine, each as its users saw it."""

from __future__ import annotations

import asyncio

import grpc
from tests.sources.pipeline.engine.test_many_nodes import content
from tests.sources.pipeline.engine.test_one_node import refusing
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive.sources.pipeline.protos.graph_pb2 import DlqConfig
from redrive.sources.pipeline.protos.module_pb2 import OUTCOME_FAILURE, ProcessDataResponse


async def test_an_invalid_pdf_ended_in_the_dlq_and_never_reached_the_next_node(scene):
    bad = ProcessDataResponse(outcome=OUTCOME_FAILURE, error_message="invalid PDF format")
    async with serving(lambda _r, _c: bad, content) as (parser, indexer):
        graph = scene.graph({"id": "parse", "module": parser.target}, {"id": "index", "module": indexer.target},
                            edges=[("parse", "index")])  # fmt: skip
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: len(scene.done()) == 1)
    assert scene.dead("parse") == []
    assert scene.done()[0].history[0].error_info.error_message == "invalid PDF format"


async def test_failed_documents_were_committed_and_gone_because_an_absent_dlq_setting_meant_off(scene):
    assert not DlqConfig().HasField("enabled")  # absent is not false
    async with serving(refusing(grpc.StatusCode.UNAVAILABLE)) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "dlq": {}})
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: scene.committed("parse") == 1)
    assert len(scene.dead("parse")) == 1


async def test_a_document_that_was_still_running_was_committed_with_the_one_after_it(scene):
    release = asyncio.Event()

    async def script(request, _context):
        if request.document.doc_id == "doc-0":
            await release.wait()
        return passed_on(request)

    async with serving(script) as module:
        graph = scene.graph({"id": "parse", "module": module.target}, partitions=1)
        async with running(scene.pipeline(graph)):
            scene.send(graph, 2)
            await until(lambda: len(scene.done()) == 1)
            assert scene.committed("parse", 1) == 0
            release.set()
            await until(lambda: scene.committed("parse", 1) == 2)


async def test_a_document_was_reported_as_dead_lettered_although_the_broker_had_refused_it(scene):
    async with serving(refusing(grpc.StatusCode.UNAVAILABLE)) as module:
        scene.stage.create(1, topic=f"dlq.{scene.env}.parse", max_message_bytes="500")
        graph = scene.graph({"id": "parse", "module": module.target})
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            scene.send(graph, body=bytes(range(256)) * 20)
            await until(lambda: pipeline.health["parse"].status == "red")
            assert (scene.committed("parse"), pipeline.counts["parse"].dead, scene.dead("parse")) == (0, 0, [])
            assert any(f"dlq.{scene.env}.parse" in reason for reason in pipeline.health["parse"].reasons)
            scene.resize(f"dlq.{scene.env}.parse", 1_000_000)
            await until(lambda: scene.committed("parse") == 1)
    assert len(scene.dead("parse")) == 1


async def test_the_failure_of_the_next_node_behind_a_grpc_edge_was_swallowed(scene):
    async with serving(content, refusing(grpc.StatusCode.UNAVAILABLE)) as (good, bad):
        graph = scene.graph({"id": "parse", "module": good.target}, {"id": "embed", "module": bad.target},
                            edges=[("parse", "embed", {"transport": "grpc"})])  # fmt: skip
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: scene.committed("parse") == 1)
    assert [letter.failed_node_id for letter in scene.dead("embed")] == ["embed"]


async def test_every_node_retried_alike_and_the_dlq_said_the_configured_number(scene):
    async with serving(refusing(grpc.StatusCode.UNAVAILABLE)) as module:
        nodes = [{"id": "once", "module": module.target, "dlq": {"max_retries": 1}},
                 {"id": "often", "module": module.target, "dlq": {"max_retries": 5}}]  # fmt: skip
        graph = scene.graph(*nodes)
        async with running(scene.pipeline(graph)):
            for node in ("once", "often"):
                scene.put(scene.streams(graph, 1), f"in.{scene.env}.{node}")
            await until(lambda: scene.committed("once") + scene.committed("often") == 2)
    counted = {node: scene.dead(node)[0].retry_count for node in ("once", "often")}
    assert counted == {"once": 1, "often": 5}
    assert len(module.calls) == 6
    assert scene.dead("often")[0].original_offset == 0
    assert scene.dead("often")[0].HasField("original_partition")


async def test_a_document_that_could_not_be_read_was_skipped_and_committed(scene):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        async with running(scene.pipeline(graph)):
            scene.stage.produce([{"value": b"\x08nonsense", "key": b"k"}], topic=f"in.{scene.env}.parse")
            await until(lambda: scene.committed("parse") == 1)
    assert [letter.undecoded for letter in scene.quarantined("parse")] == [b"\x08nonsense"]


async def test_a_loop_in_the_graph_went_round_for_ever(scene):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target}, edges=[("parse", "parse")], entry="parse",
                            hop_limit=3)  # fmt: skip
        async with running(scene.pipeline(graph)):
            scene.send(graph)
            await until(lambda: len(scene.done()) == 1)
    assert len(module.calls) == 3


async def test_the_second_and_third_branch_of_a_document_were_sent_and_forgotten(scene):
    async with serving() as module:
        nodes = [{"id": name, "module": module.target} for name in ("parse", "one", "two", "three")]
        graph = scene.graph(*nodes, edges=[("parse", name) for name in ("one", "two", "three")])
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            scene.send(graph, 5)
            await until(lambda: scene.committed("parse") == 5)
            confirmed = sum(len(scene.messages(f"in.{scene.env}.{name}")) for name in ("one", "two", "three"))
            assert confirmed == 15  # before the commit, not after
            await until(lambda: len(scene.done()) == 15)
    assert {done.branch for done in scene.done()} == {"1of3", "2of3", "3of3"}
