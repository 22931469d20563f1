"""Defects of an earlier engine, each as its users saw it."""

from __future__ import annotations

import asyncio

import grpc
from tests.sources.pipeline.engine.test_many_nodes import content
from tests.sources.pipeline.engine.test_one_node import refusing
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive.sources.pipeline.admin.lanes.jobs import replay_job
from redrive.sources.pipeline.admin.lanes.lane_job import carry_out
from redrive.sources.pipeline.admin.lanes.letter_choice import EVERY_LETTER
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
        graph = scene.graph({"id": "parse", "module": module.target})
        slow, after_it, elsewhere = (each.SerializeToString() for each in scene.streams(graph, 3))
        topic = f"in.{scene.env}.parse"
        async with running(scene.pipeline(graph)):
            scene.stage.produce([{"value": slow, "partition": 0}, {"value": after_it, "partition": 0}], topic=topic)
            await until(lambda: len(scene.done()) == 1)
            scene.stage.produce([{"value": elsewhere, "partition": 1}], topic=topic)
            await until(lambda: scene.committed("parse") >= 1)  # a commit takes in all partitions
            assert scene.committed("parse") == 1
            release.set()
            await until(lambda: scene.committed("parse") == 3)


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


async def test_every_node_retried_alike(scene):
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


async def test_a_dead_letter_said_the_configured_number_of_calls_and_not_where_it_came_from(scene):
    async def ends_at_the_second(_request, context):
        trailers = (("grpc-retry-pushback-ms", "-1"),) if len(module.calls) == 2 else ()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "down", trailers)

    async with serving(ends_at_the_second) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "dlq": {"max_retries": 5}})
        topic = f"in.{scene.env}.parse"
        async with running(scene.pipeline(graph)):
            sent = [b"no document", *(each.SerializeToString() for each in scene.streams(graph, 1))]
            scene.stage.produce([{"value": each, "partition": 1} for each in sent], topic=topic)
            await until(lambda: scene.committed("parse") == 2)
    [letter] = scene.dead("parse")
    assert letter.retry_count == len(module.calls) == 2
    assert (letter.original_topic, letter.original_partition, letter.original_offset) == (topic, 1, 1)


async def test_a_document_that_could_not_be_read_was_skipped_and_committed(scene):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        async with running(scene.pipeline(graph)):
            scene.stage.produce([{"value": b"\x08nonsense", "key": b"k"}], topic=f"in.{scene.env}.parse")
            await until(lambda: scene.committed("parse") == 1)
    assert [letter.undecoded for letter in scene.quarantined("parse")] == [b"\x08nonsense"]


async def test_a_dead_letter_without_its_payload_could_never_be_replayed(scene, tmp_path):
    async with serving(refusing(grpc.StatusCode.UNAVAILABLE, times=3)) as module:
        storage = {"url": f"file://{tmp_path}/bodies"}
        node = {"id": "parse", "module": module.target, "dlq": {"include_payload": False}}
        graph = scene.graph(node, documents=storage)
        async with running(scene.pipeline(graph)):
            scene.send(graph, body=b"small")
            await until(lambda: len(scene.dead("parse")) == 1)
            [letter] = scene.dead("parse")
            assert letter.payload_left_out
            assert letter.stream.document_ref.key
            assert not letter.stream.HasField("document")
            scene.put([letter.stream], f"in.{scene.env}.parse")  # as a replay does
            await until(lambda: len(scene.done()) == 1)
    assert module.calls[-1].document.body == b"small"


async def test_dead_letters_stayed_in_their_topic_because_nothing_could_send_them_again(scene):
    async with serving(refusing(grpc.StatusCode.UNAVAILABLE, times=4)) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "dlq": {"max_retries": 2}})
        async with running(scene.pipeline(graph)):
            scene.send(graph, 2)
            await until(lambda: len(scene.dead("parse")) == 2)
            job = replay_job(graph, graph.nodes[0], EVERY_LETTER)
            reports = await asyncio.to_thread(lambda: list(carry_out(scene.kafka(), job)))
            await until(lambda: len(scene.done()) == 2)
    assert reports[-1].sent == 2
    assert {done.stream_id for done in scene.done()} == {"stream-0", "stream-1"}


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
        refusing_topic = f"in.{scene.env}.two"
        scene.stage.create(2, topic=refusing_topic, max_message_bytes="500")
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            scene.send(graph, body=bytes(range(256)) * 20)
            await until(lambda: len(scene.done()) == 2)
            await until(lambda: pipeline.health["parse"].status == "red")
            assert any(refusing_topic in reason for reason in pipeline.health["parse"].reasons)
            assert scene.committed("parse") == 0  # not before all three are confirmed
            scene.resize(refusing_topic, 1_000_000)
            await until(lambda: len(scene.done()) == 3)
            await until(lambda: scene.committed("parse") == 1)
    assert sorted(done.branch for done in scene.done()) == ["1of3", "2of3", "3of3"]  # those that went were not repeated
