"""Collected letters that are replayed go back to their topic."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import msgspec
import pytest
from tests.sources.kafka.collect.collected import SPRING, collect, letters
from tests.sources.kafka.stage import LIMIT

from redrive import Redrive, Status
from redrive.engine.clock import new_id
from redrive.sources.kafka import KafkaSender
from redrive.sources.kafka.collect.convert import FoundRecord, draft_of, kind_of
from redrive.sources.kafka.dead_letters.dialects import read_account
from redrive.sources.kafka.dead_letters.headers import NAMESPACE


async def test_a_replayed_letter_goes_home_as_it_was_and_is_delivered_on_the_brokers_word(stage):
    stage.create()
    stage.create(topic=stage.dlq)
    odd = [
        {"value": None, "key": b"\xff\x00k", "headers": [("a", None), ("a", b"\xff")]},
        {"value": b"", "key": None},
        {"value": b"plain", "key": b""},
    ]
    stage.produce(odd, topic=stage.dlq)
    app = Redrive("memory://")
    sender = KafkaSender(stage.kafka())
    app.send_home("kafka", sender)
    async with app:
        await collect(stage, app.store)
        found = await letters(app.store)
        for letter in found:
            await app.desk.replay(letter.id, reason="fixed")
        assert await app.run(until_idle=True, signals=False)
        assert {(await app.store.get(letter.id)).status for letter in found} == {Status.DELIVERED}
    sender.close()
    home = {message.key(): message for message in stage.read()}
    assert {key: home[key].value() for key in home} == {b"\xff\x00k": None, None: b"", b"": b"plain"}
    own = [pair for pair in home[b"\xff\x00k"].headers() if not pair[0].startswith(NAMESPACE)]
    assert own == [("a", None), ("a", b"\xff")]


async def test_a_letter_whose_home_is_gone_fails_again_and_is_not_delivered(stage):
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"v", "headers": SPRING[:4]}], topic=stage.dlq)
    app = Redrive("memory://")
    sender = KafkaSender(stage.kafka(dlq_flush_timeout_ms=300), allowed=("elsewhere",))
    app.send_home("kafka", sender)
    async with app:
        await collect(stage, app.store)
        [letter] = await letters(app.store)
        await app.desk.replay(letter.id, reason="try")
        await app.run(until_idle=True, signals=False)
        [letter] = await letters(app.store)
        assert "may not write" in letter.last_error
    sender.close()


async def test_the_command_collects_and_sends_home(stage, tmp_path):
    stage.create()
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b'{"n": 1}'}], topic=stage.dlq)
    url = f"sqlite:///{tmp_path / 'letters.db'}"

    def run(*words):
        command = [sys.executable, "-m", "redrive.cli", "--url", url, *words]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def collect_once():
        return run("kafka", "collect", stage.dlq, "--group", stage.group, "--servers", stage.bootstrap, "--once")

    assert "1 collected" in await asyncio.to_thread(collect_once)
    [line] = msgspec.json.decode(await asyncio.to_thread(run, "ls", "--json"))["letters"]
    await asyncio.to_thread(run, "replay", line["id"], "--reason", "fixed", "--yes")
    assert "1 sent home" in await asyncio.to_thread(collect_once)
    assert [message.value() for message in stage.read()] == [b'{"n": 1}']


async def test_letters_of_every_topic_go_back_and_so_do_those_that_were_collected_under_the_plain_kind(stage):
    app = Redrive("memory://")
    sender = KafkaSender(stage.kafka())
    app.send_home("kafka", sender)
    sources = [f"{stage.topic}-{name}" for name in "ab"]
    for source in sources:
        stage.create(topic=source)
        stage.create(topic=f"{source}.dlq")
        stage.produce([{"value": source.encode()}], topic=f"{source}.dlq")
    async with app:
        await collect(stage, app.store, f"{stage.topic}-*.dlq")
        found = await letters(app.store)
        assert {letter.kind for letter in found} == {f"kafka.{source}" for source in sources}
        earlier = read_account((), home=sources[0])
        place = {"topic": "t", "topic_id": "t", "partition": 0, "offset": 0}
        before = draft_of(FoundRecord(**place, key=None, value=b"before", headers=()), earlier, new_id())
        before = msgspec.structs.replace(before, kind="kafka")
        await app.store.put([before])
        for letter in await letters(app.store):
            await app.desk.replay(letter.id, reason="fixed")
        assert await app.run(until_idle=True, signals=False)
    sender.close()
    assert sorted(message.value() for message in stage.read(sources[0])) == [b"before", sources[0].encode()]
    assert [message.value() for message in stage.read(sources[1])] == [sources[1].encode()]


@pytest.mark.parametrize("topic", ["", "..", "no topic", "t" * 250, "\ud800", "a\0b"])
def test_a_name_in_headers_that_no_topic_can_have_is_not_part_of_the_kind(topic):
    assert kind_of(topic) == "kafka"


async def test_letters_of_any_queue_are_relayed_with_their_key_and_delivered_on_the_brokers_word(stage):
    stage.create()
    app = Redrive("memory://")
    sender = KafkaSender(stage.kafka(), topic=lambda letter: stage.topic)
    app.relay("order.paid", sender)
    async with app:
        receipt = await app.enqueue("order.paid", {"n": 1}, key="k", headers=[("own", b"h")])
        assert await app.run(until_idle=True, signals=False)
        assert (await app.store.get(receipt.id)).status is Status.DELIVERED
    sender.close()
    [message] = stage.read()
    assert (message.key(), message.value()) == (b"k", b'{"n":1}')
    assert message.headers() == [("own", b"h"), ("x-redrive-letter", receipt.id.encode())]
