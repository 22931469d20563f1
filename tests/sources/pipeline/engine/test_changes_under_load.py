"""What may change while documents are under way: the graph, and a topic."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from confluent_kafka.admin import NewTopic, ResourceType
from tests.sources.kafka.client.test_forbidden import rule, unrule
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive.errors import SettingsError, SourceError
from redrive.sources.pipeline.admin.admin_desk import AdminDesk
from redrive.sources.pipeline.engine import arrivals
from redrive.sources.pipeline.engine import pipeline as engine
from redrive.sources.pipeline.engine.draining import QuietSpell
from redrive.sources.pipeline.engine.topics import prepare
from redrive.sources.pipeline.protos import admin_pb2 as messages
from redrive.sources.pipeline.protos.document_pb2 import PipeStream


async def test_a_graph_reloaded_under_load_loses_nothing_and_a_removed_node_drains_its_topic(scene):
    opened = asyncio.Event()

    async def slow(request, _context):
        await opened.wait()
        return passed_on(request)

    async with serving(lambda request, _context: passed_on(request), slow) as (quick, embedder):
        parse, index = ({"id": name, "module": quick.target} for name in ("parse", "index"))
        embed = {"id": "embed", "module": embedder.target}
        before = scene.graph(parse, embed, index, edges=[("parse", "embed"), ("embed", "index")])
        after = scene.graph(parse, index, edges=[("parse", "index")], version=2)
        pipeline = scene.pipeline(before)
        async with running(pipeline):
            scene.send(before, 20)
            await until(lambda: len(embedder.calls) >= 1 and scene.committed("parse") == 20)
            await pipeline.reload(after)
            scene.put([_renamed(each) for each in scene.streams(after, 20)], f"in.{scene.env}.parse")
            await until(lambda: len(scene.done()) >= 20)  # the new way does not wait for the old one
            assert set(pipeline._clients.targets) == {quick.target, embedder.target}  # its calls are still under way
            desk = AdminDesk(lambda: pipeline.graph, pipeline.kafka, engine=pipeline)
            shown = {each.node_id: each for each in (await desk.list_nodes(messages.ListNodesRequest())).nodes}
            assert (shown["embed"].state, shown["embed"].depth) == (messages.NODE_STATE_REMOVED, 20)
            assert shown["parse"].state == messages.NODE_STATE_RUNNING
            opened.set()
            await until(lambda: len(scene.done()) >= 40 and not pipeline._draining)
            await until(lambda: set(pipeline._clients.targets) == {quick.target})
    done = scene.done()
    paths = {each.stream_id: tuple(each.processing_path) for each in done}
    assert len(done) == len(paths) == 40
    assert all(path == (("parse", "index") if name.startswith("new-") else ("parse", "embed", "index"))
               for name, path in paths.items())  # fmt: skip
    assert scene.committed("embed") == 20
    assert {stream.metadata.graph_version for stream in scene.outputs(f"in.{scene.env}.index")} == {1, 2}


async def test_the_channel_to_a_module_that_is_gone_is_closed_after_its_last_call(scene):
    opened = asyncio.Event()

    async def slow(request, _context):
        await opened.wait()
        return passed_on(request)

    async with serving(lambda request, _context: passed_on(request), slow) as (quick, old):
        parse = {"id": "parse", "module": quick.target}
        graphs = [
            scene.graph(parse, {"id": "embed", "module": target}, edges=[("parse", "embed", {"transport": "grpc"})])
            for target in (old.target, quick.target)
        ]
        pipeline = scene.pipeline(graphs[0])
        async with running(pipeline):
            scene.send(graphs[0])
            await until(lambda: old.calls)
            await pipeline.reload(graphs[1])
            await pipeline._close_clients()
            assert set(pipeline._clients.targets) == {quick.target, old.target}
            opened.set()
            await until(lambda: len(scene.done()) == 1)
            await until(lambda: set(pipeline._clients.targets) == {quick.target})
    assert len(old.calls) == 1


async def test_a_document_of_a_caller_that_waits_for_its_next_call_keeps_its_channel(scene, monkeypatch):
    monkeypatch.setattr(arrivals, "DRAIN", 0.1)

    async def away(_request, context):
        await context.abort(grpc.StatusCode.UNAVAILABLE, "away")

    async with serving(away, lambda request, _context: passed_on(request)) as (old, new):
        dlq = {"initial_backoff": 30, "max_backoff": 30, "jitter": "none"}
        pipeline = scene.pipeline(scene.graph({"id": "embed", "module": old.target, "dlq": dlq}))
        async with running(pipeline):
            await until(lambda: pipeline._arrivals is not None)
            handed = asyncio.create_task(pipeline.process(PipeStream(stream_id="s1"), "embed"))
            await until(lambda: pipeline.counts["embed"].retried == 1)
            await pipeline.reload(scene.graph({"id": "embed", "module": new.target}))
            await pipeline._close_clients()
            assert set(pipeline._clients.targets) == {old.target, new.target}
        with pytest.raises(arrivals.NotTaken, match="the engine stops"):
            await handed


async def test_a_paused_node_that_changes_stays_paused(scene, monkeypatch):
    monkeypatch.setattr(engine, "_GLANCE", 0.001)  # it looks for channels to close while the node restarts
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": "127.0.0.1:1"})
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            pipeline.gate("parse").pause("by a test")
            await pipeline.reload(scene.graph({"id": "parse", "module": module.target}))
            assert pipeline.gate("parse").paused == "by a test"
            scene.send(graph)
            await until(lambda: pipeline.gate("parse").waiting == 1)
            assert module.calls == []
            pipeline.gate("parse").resume()
            await until(lambda: len(scene.done()) == 1)


async def test_a_graph_that_cannot_run_stops_no_node(scene):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            broken = scene.graph({"id": "parse", "module": module.target, "tls": {"ca": "/no/such/file"}})
            with pytest.raises(SettingsError, match="cannot read the TLS file"):
                await pipeline.reload(broken)
            assert pipeline.graph is graph
            scene.send(graph)
            await until(lambda: len(scene.done()) == 1)


async def test_several_reloads_at_once_follow_each_other(scene):
    async with serving() as module:
        graphs = [scene.graph({"id": "parse", "module": module.target, "timeout": 10 + n}, version=n) for n in range(4)]
        pipeline = scene.pipeline(graphs[0])
        early = asyncio.create_task(pipeline.reload(graphs[1]))  # before the engine has started
        async with running(pipeline):
            await asyncio.gather(early, *(pipeline.reload(graph) for graph in graphs[2:]))
            assert pipeline.graph.version == 3
            scene.send(graphs[3])
            await until(lambda: len(scene.done()) == 1)
            ending = asyncio.create_task(pipeline.reload(graphs[0]))
            await asyncio.sleep(0)
        with pytest.raises(SourceError, match="the engine stops, and takes no other graph"):
            await ending
        assert pipeline.graph.version == 3
    assert "redrive-node-parse" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_an_engine_that_is_stopped_during_a_reload_ends_after_the_documents_of_the_nodes_that_restart(scene):
    opened = asyncio.Event()

    async def slow(request, _context):
        await opened.wait()
        return passed_on(request)

    async with serving(slow) as module:
        graphs = [scene.graph({"id": "parse", "module": module.target, "timeout": 50 + n}) for n in range(2)]
        pipeline = scene.pipeline(graphs[0])
        async with running(pipeline) as task:
            scene.send(graphs[0])
            await until(lambda: module.calls)
            reloading = asyncio.create_task(pipeline.reload(graphs[1]))
            await until(lambda: not pipeline._runs)  # the node drains, and waits for its module
            pipeline.stop()
            for _ in range(1000):  # an engine that did not wait would close its channels meanwhile
                await asyncio.sleep(0)
            assert not task.done()
            opened.set()
            with pytest.raises(SourceError, match="the engine stops"):
                await reloading
            await task
            assert "redrive-node-parse" not in {each.get_name() for each in asyncio.all_tasks()}
    assert (len(module.calls), len(scene.done()), scene.committed("parse")) == (1, 1, 1)


async def test_a_removed_node_whose_document_waits_for_its_next_call_keeps_its_channel(scene):
    async def away(_request, context):
        await context.abort(grpc.StatusCode.UNAVAILABLE, "away")

    async with serving(lambda request, _context: passed_on(request), away) as (quick, old):
        parse = {"id": "parse", "module": quick.target}
        dlq = {"initial_backoff": 60, "max_backoff": 60, "jitter": "none"}
        before = scene.graph(parse, {"id": "embed", "module": old.target, "dlq": dlq}, edges=[("parse", "embed")])
        pipeline = scene.pipeline(before)
        async with running(pipeline):
            scene.send(before)
            await until(lambda: pipeline.counts["embed"].retried == 1)
            await pipeline.reload(scene.graph(parse, version=2))
            await pipeline._close_clients()
            assert set(pipeline._clients.targets) == {quick.target, old.target}
            assert [node.id for _, node in pipeline.draining] == ["embed"]


async def test_a_removed_node_is_there_for_documents_of_the_old_graph_that_come_to_it_later(scene):
    opened = asyncio.Event()

    async def slow(request, _context):
        await opened.wait()
        return passed_on(request)

    async with serving(slow, lambda request, _context: passed_on(request)) as (parser, quick):
        parse = {"id": "parse", "module": parser.target}
        embed = {"id": "embed", "module": quick.target}
        before = scene.graph(parse, embed, edges=[("parse", "embed")])
        pipeline = scene.pipeline(before)
        async with running(pipeline):
            scene.send(before)
            await until(lambda: parser.calls)
            parts = pipeline._runs["embed"].consumer
            await until(lambda: parts.partitions and all(each.lag == 0 for each in parts.partitions))
            await pipeline.reload(scene.graph(parse, version=2))
            pipeline.clock = Later(pipeline.clock)
            for _ in range(3):
                await pipeline._end_drained()
            assert [node.id for _, node in pipeline.draining] == ["embed"]
            opened.set()
            await until(lambda: [list(done.processing_path) for done in scene.done()] == [["parse", "embed"]])
            await until(lambda: not pipeline.draining)


async def test_a_removed_node_that_has_no_partitions_yet_has_not_drained(scene):
    async with serving() as module:
        parse, embed = ({"id": name, "module": module.target} for name in ("parse", "embed"))
        before = scene.graph(parse, embed, edges=[("parse", "embed")])
        prepare(before, scene.kafka())
        scene.put(scene.streams(before, 5), f"in.{scene.env}.embed")
        pipeline = scene.pipeline(before)
        async with running(pipeline):
            await pipeline.reload(scene.graph(parse, version=2))
            pipeline.clock = Later(pipeline.clock)
            for _ in range(3):
                await pipeline._end_drained()
            await until(lambda: len(scene.done()) == 5)
            await until(lambda: not pipeline.draining)


def test_a_node_has_drained_once_nothing_has_come_for_three_seconds():
    spell = QuietSpell()
    looks = [(True, 10.0), (True, 12.9), (False, 12.95), (True, 13.5), (True, 16.4), (True, 16.5)]
    assert [spell.is_over(quiet=quiet, now=now) for quiet, now in looks] == [False] * 5 + [True]


async def test_a_held_node_that_changes_tries_at_once(scene):
    async def denied(_request, context):
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no token")

    async with serving(denied, lambda request, _context: passed_on(request)) as (old, new):
        graph = scene.graph({"id": "parse", "module": old.target})
        pipeline = scene.pipeline(graph)
        async with running(pipeline):
            scene.send(graph)
            await until(lambda: pipeline.gate("parse").reason)
            await pipeline.reload(scene.graph({"id": "parse", "module": new.target}))
            assert pipeline.gate("parse").reason == ""
            await until(lambda: len(scene.done()) == 1)


class Later:
    """A clock on which an hour passes between two looks."""

    def __init__(self, clock):
        self._clock, self._looks = clock, 0

    def monotonic(self):
        self._looks += 1
        return self._clock.monotonic() + 3600 * self._looks

    def __getattr__(self, name):
        return getattr(self._clock, name)


def _renamed(stream):
    stream.stream_id = f"new-{stream.stream_id}"
    return stream


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_dlq_topic_that_was_deleted_holds_the_commit_until_it_is_back(scene, exactly_once):
    async def away(_request, context):
        await context.abort(grpc.StatusCode.UNAVAILABLE, "away")

    async with serving(away) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "dlq": {"max_retries": 1}})
        dlq, admin = f"dlq.{scene.env}.parse", scene.stage.admin
        async with running(scene.pipeline(graph, exactly_once=exactly_once)):
            await until(lambda: scene.has(dlq))
            admin.delete_topics([dlq])[dlq].result(30)
            await until(lambda: not scene.has(dlq))
            scene.send(graph)
            await until(lambda: len(module.calls) == 1)
            assert scene.committed("parse") == 0
            admin.create_topics([NewTopic(dlq, 1, 1)])[dlq].result(30)
            await until(lambda: scene.committed("parse") == 1)
    assert [letter.error_type for letter in scene.dead("parse")] == ["UNAVAILABLE"]


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_dlq_topic_that_the_engine_may_not_write_to_holds_the_commit_until_it_may(scene, exactly_once):
    async def away(_request, context):
        await context.abort(grpc.StatusCode.UNAVAILABLE, "away")

    async with serving(away) as module:
        graph = scene.graph({"id": "parse", "module": module.target, "dlq": {"max_retries": 1}})
        dlq = ResourceType.TOPIC, f"dlq.{scene.env}.parse"
        pipeline = scene.pipeline(graph, exactly_once=exactly_once)
        async with running(pipeline):
            await until(lambda: pipeline._runs["parse"].consumer.assigned == 2)  # at its start it would be refused
            await rule(scene.stage, *dlq, ALLOW="READ DESCRIBE")
            scene.send(graph)
            await until(lambda: "authorization failed" in str(pipeline.health["parse"].reasons).lower())
            assert pipeline.health["parse"].status == "red"
            assert (scene.committed("parse"), scene.dead("parse")) == (0, [])
            await unrule(scene.stage, *dlq)
            await until(lambda: len(scene.dead("parse")) == 1 and scene.committed("parse") >= 1)
    assert scene.dead("parse")[0].error_type == "UNAVAILABLE"
