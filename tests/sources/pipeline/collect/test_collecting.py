"""Dead documents at the desk: collected, grouped, edited, replayed into their node."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest
from tests.sources.pipeline.modules.scripted import passed_on, serving
from tests.sources.pipeline.scene import running, until

from redrive import Redrive
from redrive.sources.kafka import Collector
from redrive.sources.pipeline.admin.admin_desk import AdminDesk
from redrive.sources.pipeline.admin.lanes.jobs import replay_job
from redrive.sources.pipeline.admin.lanes.lane_job import carry_out
from redrive.sources.pipeline.admin.lanes.letter_choice import LetterChoice
from redrive.sources.pipeline.collect.convert import draft_of
from redrive.sources.pipeline.collect.sender import PipelineSender
from redrive.sources.pipeline.protos import admin_pb2 as messages


@pytest.fixture
async def app(tmp_path):
    made = Redrive(f"sqlite:///{tmp_path}/letters.db")
    async with made:
        yield made


@pytest.fixture
async def broken(scene):
    """A node whose module is away: three documents with a body are in its DLQ."""
    graph = scene.graph({"id": "embed", "module": "127.0.0.1:1", "dlq": {"max_retries": 2}})
    async with running(scene.pipeline(graph)):
        scene.send(graph, 3, body=b"\x00\xffcontent", type="pdf")
        await until(lambda: len(scene.dead("embed")) == 3)
    return graph


async def collected(app, scene, graph):
    collector = Collector(
        scene.kafka(), [f"dlq.{scene.env}.embed"], app.store, group=f"c-{scene.env}", draft=partial(draft_of)
    )
    await collector.run(until_end=True)
    return collector


async def test_dead_documents_are_letters_that_people_can_read_and_group(app, scene, broken):
    assert (await collected(app, scene, broken)).collected == 3
    found = await app.desk.ls("origin:pipeline:embed")
    assert {(row.kind, row.status, row.attempts) for row in found.letters} == {("pipeline.embed", "failed", 2)}
    (group,) = await app.desk.groups()
    assert (group.count, group.title.partition(":")[0]) == (3, "embed")
    sheet = await app.desk.show(found.letters[0].id)
    shown = msgspec.json.decode(sheet.payload)
    assert shown["document"]["type"] == "pdf"
    assert "body" not in shown["document"]
    assert sheet.metadata["pipeline"]["lane"] == "dlq"
    why = await app.desk.explain(found.letters[0].id)
    assert "CONNECTION_REFUSED" in str(why)
    assert await app.desk.groups("origin:pipeline:embed") == [group]
    assert await app.desk.groups("origin:pipeline:parse") == []
    (node,) = await app.desk.groups(by="origin")
    assert (node.value, node.count, node.title) == ("pipeline:embed", 3, group.title)
    assert len((await app.desk.ls(node.query)).letters) == 3


async def test_collecting_twice_keeps_one_letter_of_each(app, scene, broken):
    await collected(app, scene, broken)
    again = Collector(
        scene.kafka(), [f"dlq.{scene.env}.embed"], app.store, group=f"other-{scene.env}", draft=partial(draft_of)
    )
    await again.run(until_end=True)
    assert (again.collected, again.known) == (0, 3)


async def test_a_replay_at_the_desk_goes_to_the_node_as_it_was_and_counts(app, scene, broken):
    await collected(app, scene, broken)
    sender = PipelineSender(scene.kafka(), broken)
    app.send_home("pipeline", sender)
    await app.desk.replay(query="origin:pipeline:embed", reason="the module is back")
    await app.run(until_idle=True, signals=False)
    sender.close()
    async with serving(lambda request, _: passed_on(request)) as module:
        healed = scene.graph({"id": "embed", "module": module.target})
        async with running(scene.pipeline(healed)):
            await until(lambda: len(scene.done()) == 3)
    assert {call.document.body for call in module.calls} == {b"\x00\xffcontent"}
    sent = [each for each in scene.outputs(f"in.{scene.env}.embed") if each.replay_id]
    assert [each.reprocess_count for each in sent] == [1, 1, 1]
    desk = AdminDesk(lambda: broken, scene.kafka())
    waiting = [each async for each in desk.replay(messages.ReplayRequest(node_id="embed", dry_run=True))]
    assert waiting[-1].read == 0  # `redrive pipeline replay` knows that they were sent


async def test_what_the_pipelines_own_replay_has_sent_is_not_sent_again_at_the_desk(app, scene, broken):
    await collected(app, scene, broken)
    job = replay_job(broken, broken.nodes[0], LetterChoice(stream_ids=frozenset({"stream-1"})))
    await asyncio.to_thread(lambda: list(carry_out(scene.kafka(), job)))
    sender = PipelineSender(scene.kafka(), broken)
    app.send_home("pipeline", sender)
    await app.desk.replay(query="origin:pipeline:embed", reason="the module is back")
    await app.run(until_idle=True, signals=False)
    sender.close()
    sent = [each for each in scene.outputs(f"in.{scene.env}.embed") if each.replay_id]
    assert sorted(each.stream_id for each in sent) == ["stream-0", "stream-1", "stream-2"]
    (row,) = (await app.desk.ls("origin:pipeline:embed status:failed")).letters
    why = (await app.desk.show(row.id)).last_error or ""
    assert "was sent to a node, or moved to quarantine, before" in why
    assert "archive this letter" in why


async def test_an_edited_document_is_sent_as_it_was_edited_with_its_body(app, scene, broken):
    await collected(app, scene, broken)
    (row, *_) = (await app.desk.ls("origin:pipeline:embed")).letters
    sheet = await app.desk.show(row.id)
    wanted = msgspec.json.decode(sheet.payload)
    wanted["document"]["type"] = "html"
    await app.desk.edit(row.id, msgspec.json.encode(wanted), version=sheet.payload_version, reason="it is HTML")
    sender = PipelineSender(scene.kafka(), broken)
    app.send_home("pipeline", sender)
    await app.desk.replay(row.id, reason="edited")
    await app.run(until_idle=True, signals=False)
    sender.close()
    (sent,) = [each for each in scene.outputs(f"in.{scene.env}.embed") if each.replay_id]
    assert (sent.document.type, sent.document.body) == ("html", b"\x00\xffcontent")


async def test_a_letter_of_a_node_that_is_gone_says_so(app, scene, broken):
    await collected(app, scene, broken)
    other = scene.graph({"id": "parse", "module": "127.0.0.1:1"})
    sender = PipelineSender(scene.kafka(), other)
    app.send_home("pipeline", sender)
    await app.desk.replay(query="origin:pipeline:embed", reason="try")
    await app.run(until_idle=True, signals=False)
    sender.close()
    (row, *_) = (await app.desk.ls("origin:pipeline:embed")).letters
    assert "has no node 'embed' any more" in ((await app.desk.show(row.id)).last_error or "")
