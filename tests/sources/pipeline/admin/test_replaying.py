"""Operators act on the lanes of a node: a real broker, a real module, a real engine."""

from __future__ import annotations

from itertools import pairwise

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.sources.pipeline.modules.scripted import serving
from tests.sources.pipeline.scene import running, until

from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.sources.pipeline.admin.admin_desk import AdminDesk
from redrive.sources.pipeline.admin.lanes.jobs import replay_job
from redrive.sources.pipeline.admin.lanes.lane_job import carry_out
from redrive.sources.pipeline.admin.lanes.lane_letter import LaneLetter
from redrive.sources.pipeline.admin.lanes.ledger import LaneLedger
from redrive.sources.pipeline.admin.lanes.letter_choice import EVERY_LETTER
from redrive.sources.pipeline.admin.pauses import PauseWatcher
from redrive.sources.pipeline.engine.topics import prepare
from redrive.sources.pipeline.protos import admin_pb2 as messages
from redrive.sources.pipeline.protos.document_pb2 import DlqMessage
from redrive.stores.memory import MemoryStore


@pytest.fixture
async def store():
    made = MemoryStore()
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def broken(scene):
    """A node whose module is away: six documents are in its DLQ, and nothing else."""
    graph = scene.graph({"id": "parse", "module": "127.0.0.1:1", "dlq": {"max_retries": 1}})
    pipeline = scene.pipeline(graph)
    async with running(pipeline):
        scene.send(graph, 6)
        await until(lambda: len(scene.dead("parse")) == 6)
    return graph


def request(**options):
    every = not options.get("filter")
    wanted = {"node_id": "parse", "actor": "ann", "reason": "the module is back", **options}
    wanted["filter"] = messages.LetterFilter(all=every, **options.get("filter", {}))
    return messages.ReplayRequest(**wanted)


async def last(progress):
    return [each async for each in progress][-1]


async def test_a_replay_brings_every_dead_letter_to_the_end_once(scene, store, broken):
    desk = AdminDesk(lambda: broken, scene.kafka(), store=store)
    found = await last(desk.replay(request()))
    assert (found.read, found.matched, found.sent, found.finished) == (6, 6, 6, True)
    assert dict(found.by_error_type) == {"CONNECTION_REFUSED": 6}
    again = await last(desk.replay(request()))
    assert (again.read, again.sent) == (0, 0)

    async with serving() as module:
        healed = scene.graph({"id": "parse", "module": module.target})
        async with running(scene.pipeline(healed)):
            await until(lambda: len(scene.done()) == 6)
    assert sorted(each.stream_id for each in scene.done()) == [f"stream-{n}" for n in range(6)]


async def test_a_filter_sends_only_what_it_picks_and_the_rest_stays(scene, store, broken):
    desk = AdminDesk(lambda: broken, scene.kafka(), store=store)
    found = await last(desk.replay(request(filter={"stream_ids": ["stream-3"]})))
    assert (found.read, found.matched, found.sent) == (6, 1, 1)
    (status,) = (await desk.list_nodes(messages.ListNodesRequest())).nodes
    assert (status.depth, status.dlq_depth) == (1, 5)
    assert status.HasField("oldest_dead_letter")
    peeked = await desk.peek(messages.PeekRequest(node_id="parse", limit=2))
    assert [each.message.stream.stream_id != "stream-3" for each in peeked.letters] == [True, True]
    assert peeked.more


async def test_dead_letters_go_to_another_node_if_the_operator_names_it(scene, store, broken):
    both = scene.graph(*({"id": name, "module": "127.0.0.1:1"} for name in ("parse", "rescue")))
    prepare(both, scene.kafka())
    desk = AdminDesk(lambda: both, scene.kafka(), store=store)
    assert (await last(desk.replay(request(to_node_id="rescue")))).sent == 6
    sent = scene.messages(f"in.{scene.env}.rescue")
    assert sorted(each.key().decode() for each in sent) == [f"stream-{n}" for n in range(6)]
    streams = scene.outputs(f"in.{scene.env}.rescue")
    assert {(each.current_node_id, each.reprocess_count) for each in streams} == {("rescue", 1)}
    assert all(each.replay_id.startswith(f"dlq.{scene.env}.parse/") for each in streams)


class Hand(SystemClock):
    """A clock that only waiting moves."""

    def __init__(self):
        super().__init__()
        self.now, self.monotonic = 0.0, lambda: self.now

    def block(self, seconds):
        self.now += seconds


async def test_a_replay_sends_no_faster_than_its_rate(scene, broken):
    clock, parse = Hand(), broken.by_id["parse"]
    job = replay_job(broken, parse, EVERY_LETTER, rate=2.0)
    times = [(report.sent, round(clock.now, 3)) for report in carry_out(scene.kafka(), job, clock=clock)]
    assert all(sent <= 2.0 * now for sent, now in times)  # the broker may bring a second's worth in two parts
    assert all(after - before <= 2 for (before, _), (after, _) in pairwise([(0, 0.0), *times]))
    assert times[-1] == (6, 3.0)


async def test_a_dry_run_sends_nothing_and_needs_no_store(scene, broken):
    desk = AdminDesk(lambda: broken, scene.kafka())
    found = await last(desk.replay(request(dry_run=True)))
    assert (found.matched, found.sent, len(found.samples)) == (6, 0, 5)
    with pytest.raises(SourceError, match="needs a store"):
        await last(desk.replay(request()))
    assert len(scene.outputs(f"in.{scene.env}.parse")) == 6  # those that were sent at first


async def test_a_canary_that_fails_again_halts_the_replay(scene, store, broken):
    pipeline = scene.pipeline(broken)
    async with running(pipeline):
        desk = AdminDesk(lambda: broken, scene.kafka(), store=store, engine=pipeline)
        found = await last(desk.replay(request(canary=2)))
    assert (found.sent, found.came_back, found.halted, found.finished) == (2, 2, True, False)
    assert "2 of 2 canaries failed again" in found.message
    counts = sorted(each.dlq_reprocess_count for each in scene.dead("parse"))
    assert counts == [0] * 6 + [1] * 2


async def test_a_canary_that_goes_through_lets_the_rest_follow(scene, store, broken):
    async with serving() as module:
        healed = scene.graph({"id": "parse", "module": module.target})
        async with running(scene.pipeline(healed)):
            desk = AdminDesk(lambda: healed, scene.kafka(), store=store)
            found = await last(desk.replay(request(canary=2)))
            assert (found.sent, found.came_back, found.halted) == (6, 0, False)
            await until(lambda: len(scene.done()) == 6)


async def test_dead_letters_go_to_quarantine_and_are_readmitted_with_a_new_count(scene, store, broken):
    desk = AdminDesk(lambda: broken, scene.kafka(), store=store)
    only = messages.LetterFilter(stream_ids=["stream-1"])
    moved = await last(desk.quarantine(messages.QuarantineRequest(node_id="parse", filter=only, actor="ann")))
    assert moved.sent == 1
    assert [each.stream.stream_id for each in scene.quarantined("parse")] == ["stream-1"]
    assert (await last(desk.replay(request()))).sent == 5  # a replay of the DLQ does not find it
    assert (await last(desk.readmit(request()))).sent == 1
    (back,) = [each for each in scene.outputs(f"in.{scene.env}.parse") if each.replay_id.startswith("quarantine.")]
    assert (back.stream_id, back.reprocess_count) == ("stream-1", 0)


async def test_every_act_is_in_the_audit_log_without_the_text_it_looked_for(scene, store, broken):
    desk = AdminDesk(lambda: broken, scene.kafka(), store=store)
    await last(desk.replay(request(filter={"error_contains": "secret-marker"})))
    entries = [(each.by, each.verb, each.count) for each in await store.audit()]
    assert entries == [("ann", "pipeline replay", 0), ("ann", "plan pipeline replay", 0)]
    assert "secret-marker" not in str(await store.audit())


async def test_a_letter_of_another_program_is_refused_and_stays(scene, store, broken):
    scene.stage.produce([{"key": b"x", "value": b"\xff not a DlqMessage"}], topic=f"dlq.{scene.env}.parse")
    desk = AdminDesk(lambda: broken, scene.kafka(), store=store)
    found = await last(desk.replay(request()))
    assert (found.sent, found.refused) == (6, 1)
    assert "holds no PipeStream" in found.message
    assert (await last(desk.replay(request(dry_run=True)))).read == 1


async def test_a_paused_node_processes_nothing_until_it_is_resumed(scene, store):
    async with serving() as module:
        graph = scene.graph({"id": "parse", "module": module.target})
        pipeline = scene.pipeline(graph)
        desk = AdminDesk(lambda: graph, scene.kafka(), store=store, engine=pipeline)
        async with running(pipeline):
            watcher = PauseWatcher(pipeline, store, SystemClock())
            paused = await desk.pause(messages.PauseRequest(node_id="parse", actor="ann", reason="deploy"))
            assert (paused.state, paused.reason, paused.reason_by) == (messages.NODE_STATE_PAUSED, "deploy", "ann")
            await watcher.tick()
            scene.send(graph, 3)
            await until(lambda: pipeline.gate("parse").waiting == 3)
            assert scene.done() == []
            await desk.resume(messages.ResumeRequest(node_id="parse", actor="ann"))
            await watcher.tick()
            await until(lambda: len(scene.done()) == 3)


async def test_a_node_drains_while_those_before_it_are_paused_and_is_paused_then(scene, store):
    async with serving() as module:
        nodes = [{"id": name, "module": module.target} for name in ("parse", "embed")]
        graph = scene.graph(*nodes, edges=[("parse", "embed")])
        pipeline = scene.pipeline(graph)
        desk = AdminDesk(lambda: graph, scene.kafka(), store=store, engine=pipeline)
        async with running(pipeline):
            pipeline.gate("embed").pause("by a test")
            scene.send(graph, 3)
            await until(lambda: scene.committed("parse") == 3)
            watcher, seen = PauseWatcher(pipeline, store, SystemClock()), []
            async for status in desk.drain(messages.DrainRequest(node_id="embed", actor="ann", reason="move")):
                seen.append((status.state, status.depth))
                await watcher.tick()
                assert pipeline.gate("parse").paused == "by ann: drains the node embed"
                pipeline.gate("embed").resume()
            assert seen[0] == (messages.NODE_STATE_DRAINING, 3)
            assert seen[-1] == (messages.NODE_STATE_PAUSED, 0)
            assert len(scene.done()) == 3
            await desk.resume(messages.ResumeRequest(node_id="embed", actor="ann"))
            await watcher.tick()
            assert not pipeline.gate("parse").paused
            assert not pipeline.gate("embed").paused
    verbs = [(each.verb, each.by, each.target.rpartition(".")[2]) for each in await store.audit()]
    assert sorted(verbs) == sorted((verb, "ann", node) for verb in ("pause", "resume") for node in ("parse", "embed"))


async def test_an_unknown_node_is_named_with_those_that_there_are(scene, broken):
    desk = AdminDesk(lambda: broken, scene.kafka())
    with pytest.raises(SourceError, match=r"has no node 'embed'; it has parse"):
        await desk.peek(messages.PeekRequest(node_id="embed"))


async def test_a_trace_shows_every_place_of_a_document(scene, store, broken):
    desk = AdminDesk(lambda: broken, scene.kafka(), store=store)
    found = await desk.trace(messages.TraceRequest(stream_id="stream-2"))
    assert found.complete
    lanes = [(each.lane, each.past) for each in found.branches]
    assert lanes == [(messages.LANE_INPUT, True), (messages.LANE_DLQ, False)]
    assert found.branches[1].error_type == "CONNECTION_REFUSED"
    assert list(found.branches[1].next_node_ids) == ["parse"]
    await last(desk.replay(request(filter={"stream_ids": ["stream-2"]})))
    after = await desk.trace(messages.TraceRequest(stream_id="doc-2"))  # by the document's id too
    assert (after.stream_id, after.doc_id) == ("stream-2", "doc-2")
    assert [(each.lane, each.past) for each in after.branches] == [
        (messages.LANE_INPUT, True),
        (messages.LANE_DLQ, True),
        (messages.LANE_INPUT, False),
    ]


async def test_a_trace_ends_in_time_and_says_that_it_has_not_seen_everything(scene, broken):
    request = messages.TraceRequest(stream_id="stream-2")
    request.within.FromNanoseconds(1)
    found = await AdminDesk(lambda: broken, scene.kafka()).trace(request)
    assert (found.complete, list(found.branches), found.stream_id) == (False, [], "stream-2")


async def test_a_lane_that_gets_a_partition_during_a_replay_loses_no_note(scene, broken):
    topic = f"dlq.{scene.env}.parse"
    ledger = LaneLedger(scene.kafka(), topic)
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})
    partitions = len(admin.list_topics(topic, 15).topics[topic].partitions)
    admin.create_partitions([NewPartitions(topic, partitions + 1)])[topic].result(15)
    new = LaneLetter(topic, partitions, 0, DlqMessage())
    assert ledger.add([new])
    ledger.close()
    assert ledger.has(new)
