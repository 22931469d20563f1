"""Dead-letter topics of any producer in the store: kept once, worked on like any letter, sent home on replay."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from tests.sources.kafka.stage import LIMIT, until

from redrive import Redrive, Status
from redrive.core.query import parse
from redrive.engine.clock import new_id
from redrive.errors import QueueFull, SourceError, StoreUnavailable
from redrive.sources.kafka import Collector, KafkaSender
from redrive.sources.kafka.collect.convert import FoundRecord, draft_of, kind_of
from redrive.sources.kafka.dead_letters.dialects import read_account
from redrive.sources.kafka.dead_letters.headers import NAMESPACE
from redrive.stores.memory import MemoryStore

SPRING = [
    ("own", b"h"),
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", (3).to_bytes(4, "big")),
    ("kafka_dlt-original-offset", (17).to_bytes(8, "big")),
    ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
    ("kafka_dlt-exception-cause-fqcn", b"java.net.ConnectException"),
    ("kafka_dlt-exception-message", b"Connection refused"),
]
CONNECT = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"0"),
    ("__connect.errors.offset", b"5"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.exception.message", b"not JSON"),
]
SHARE = [
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"1"),
    ("__dlq.errors.offset", b"9"),
    ("__dlq.errors.group", b"shippers"),
    ("__dlq.errors.delivery.count", b"5"),
]


async def collect(stage, store, *topics, **options):
    collector = Collector(stage.kafka(), list(topics) or [stage.dlq], store, group=stage.group, **options)
    await asyncio.wait_for(collector.run(until_end=True), LIMIT)
    return collector


async def letters(store):
    return (await store.find(parse("status:failed"), limit=100)).letters


@pytest.fixture
async def store():
    made = MemoryStore()
    await made.open()
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("headers", "origin", "error_type", "attempt"),
    [
        (SPRING, "kafka:orders/3@17", "java.net.ConnectException", None),
        (CONNECT, "kafka:orders/0@5", "org.apache.kafka.connect.errors.DataException", None),
        (SHARE, "kafka:orders/1@9", "UnknownFailure", 5),
    ],
)
async def test_dead_letters_of_others_keep_their_origin_and_their_error(
    stage, store, headers, origin, error_type, attempt
):
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b'{"n": 1}', "key": b"k", "headers": headers}], topic=stage.dlq)
    await collect(stage, store)
    [letter] = await letters(store)
    assert (letter.origin, letter.error_type, letter.status) == (origin, error_type, Status.FAILED)
    assert letter.metadata["kafka"].get("attempt") == attempt
    assert letter.metadata["kafka"]["dead_letter"] == f"{stage.dlq}/0@0"
    assert not [name for name, _ in letter.headers if name.startswith(("kafka_dlt", "__"))]


async def test_collected_letters_are_grouped_by_what_they_died_of(stage, store):
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"x", "headers": headers} for headers in (SPRING, CONNECT, SPRING)], topic=stage.dlq)
    await collect(stage, store)
    groups = {letter.fingerprint for letter in await letters(store)}
    assert len(groups) == 2
    assert "" not in groups


async def test_a_record_that_is_read_twice_is_one_letter(stage, store):
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"%d" % n} for n in range(20)], topic=stage.dlq)
    assert (await collect(stage, store)).collected == 20
    again = Collector(stage.kafka(), [stage.dlq], store, group=f"{stage.group}-again")
    await asyncio.wait_for(again.run(until_end=True), LIMIT)
    assert (again.collected, again.known) == (0, 20)
    assert len(await letters(store)) == 20


async def test_a_topic_made_anew_under_an_old_name_has_letters_of_its_own(stage, store):
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"old"}], topic=stage.dlq)
    await collect(stage, store)
    stage.admin.delete_topics([stage.dlq])[stage.dlq].result(30)
    await until(lambda: stage.dlq not in stage.topics())
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"new"}], topic=stage.dlq)
    other = Collector(stage.kafka(), [stage.dlq], store, group=f"{stage.group}-again")
    await asyncio.wait_for(other.run(until_end=True), LIMIT)
    assert {letter.payload for letter in await letters(store)} == {b"old", b"new"}


async def test_a_topic_made_anew_while_it_is_collected_has_letters_of_its_own(stage, store):
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"old"}] * 5, topic=stage.dlq)
    quick = stage.kafka(settings={"topic.metadata.refresh.interval.ms": 300})
    collector = Collector(quick, [stage.dlq], store, group=stage.group)
    task = asyncio.create_task(collector.run())
    try:
        await until(lambda: collector.collected == 5)
        stage.admin.delete_topics([stage.dlq])[stage.dlq].result(30)
        await until(lambda: stage.dlq not in stage.topics())
        stage.create(topic=stage.dlq)
        stage.produce([{"value": b"new"}], topic=stage.dlq)
        await until(lambda: task.done() or collector.collected + collector.known == 6)
    finally:
        collector.stop()
        await task
    assert {letter.payload for letter in await letters(store)} == {b"old", b"new"}


class _AwayAtFirst(MemoryStore):
    refused = 0

    async def put(self, drafts):
        if self.refused < 2:
            self.refused += 1
            raise StoreUnavailable("away")
        return await super().put(drafts)


async def test_nothing_is_committed_while_the_store_is_away(stage):
    store = _AwayAtFirst()
    await store.open()
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"v"}], topic=stage.dlq)
    seen = []

    class Watching:
        def monotonic(self):
            return 0.0

        async def sleep(self, _seconds):
            seen.append(await asyncio.to_thread(lambda: stage.committed(topic=stage.dlq)))

    assert (await collect(stage, store, clock=Watching())).collected == 1
    assert seen == [None, None]
    assert stage.committed(topic=stage.dlq) == 1


async def test_dead_letters_wait_while_the_broker_does_not_say_what_topic_it_is(stage, store, monkeypatch):
    monkeypatch.setattr("redrive.sources.kafka.collect.collector._REQUEST", 0.2)
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"v"}], topic=stage.dlq)
    committed = []

    class Repairing:
        def monotonic(self):
            return 0.0

        async def sleep(self, _seconds):
            committed.append(await asyncio.to_thread(lambda: stage.committed(topic=stage.dlq)))
            collector._admin = answers

    collector = Collector(stage.kafka(), [stage.dlq], store, group=stage.group, clock=Repairing())
    answers, collector._admin = collector._admin, AdminClient({"bootstrap.servers": "127.0.0.1:1"})
    running = asyncio.create_task(collector.run())
    try:
        await until(lambda: collector.collected == 1)
    finally:
        collector.stop()
        await running
    assert committed[0] is None
    assert stage.committed(topic=stage.dlq) == 1


class _FullAtFirst(MemoryStore):
    refused = 0

    async def put(self, drafts):
        if not self.refused:
            self.refused = 1
            raise QueueFull("kafka", 1)
        return await super().put(drafts)


async def test_dead_letters_wait_while_their_queue_is_full(stage):
    store = _FullAtFirst()
    await store.open()
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"v"}], topic=stage.dlq)
    assert (await collect(stage, store)).collected == 1


async def test_a_record_that_comes_while_the_store_is_away_is_not_forgotten(stage, store):
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"v"}], topic=stage.dlq)
    [message] = stage.read(stage.dlq)

    class Client:  # a partition is assigned, and its first record comes, in the one poll of a wait
        def assignment(self):
            return []

        def pause(self, _places):
            pass

        def resume(self, _places):
            pass

        def poll(self, _wait):
            return message

    collector = Collector(stage.kafka(), [stage.dlq], store, group=stage.group)
    await collector._stay(Client())
    await asyncio.wait_for(collector.run(until_end=True), LIMIT)
    assert collector.collected + collector.known == 2  # once from the wait, once from the topic
    assert len(await letters(store)) == 1


class _Counting(Collector):
    given = 0  # how often partitions were assigned

    def _assigned(self, consumer, places):
        super()._assigned(consumer, places)
        self.given += 1


async def test_a_partition_that_is_taken_away_while_the_store_is_away_is_read_when_it_comes_back(stage, store):
    other = f"{stage.topic}-other.dlq"
    stage.create(topic=stage.dlq)
    stage.create(topic=other)
    collector = _Counting(stage.kafka(), [stage.dlq], store, group=stage.group)
    second = Collector(stage.kafka(), [other], store, group=stage.group)  # takes nothing, but everything is given anew
    consumer, read = collector._connect(), []

    def given(times: int) -> bool:
        read.append(consumer.poll(0.1))
        return collector.given >= times

    collector._subscribe(consumer)
    await until(lambda: given(1))
    consumer.pause(consumer.assignment())  # as it does while it waits for the store
    joining = asyncio.create_task(second.run())
    try:
        await until(lambda: given(2))
        stage.produce([{"value": b"v"}], topic=stage.dlq)
        await until(lambda: given(2) and any(each is not None and each.value() == b"v" for each in read))
    finally:
        await asyncio.to_thread(consumer.close)
        second.stop()
        await joining


async def test_a_dead_letter_whose_header_names_are_no_text_is_collected(stage, store):
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"v"}], topic=stage.dlq)
    [message] = stage.read(stage.dlq)

    class Odd:  # the client's own producer cannot write such a name, others can
        topic, partition, offset = message.topic, message.partition, message.offset
        key, value, timestamp = message.key, message.value, message.timestamp

        def headers(self):
            return b"\xff".decode()

    draft = Collector(stage.kafka(), [stage.dlq], store, group=stage.group)._draft(Odd(), "an id")
    assert (draft.payload, draft.origin) == (b"v", f"kafka:{stage.topic}")


@pytest.mark.parametrize("glob", ["*.dlq", "*a*.dlq", "?-[!b]*.dlq", "x-a.d*"])
async def test_a_glob_may_have_several_signs(stage, store, glob):
    for name in ("x-a.dlq", "x-b"):
        stage.create(topic=f"{stage.topic}-{name}")
        stage.produce([{"value": name.encode()}], topic=f"{stage.topic}-{name}")
    await collect(stage, store, f"{stage.topic}-{glob}")
    assert [letter.payload for letter in await letters(store)] == [b"x-a.dlq"]


async def test_a_pattern_that_the_client_cannot_read_is_refused_with_a_way_out(stage, store):
    with pytest.raises(SourceError, match="globs such as"):
        await collect(stage, store, "^(?>a)")


async def test_a_collector_that_is_cancelled_closes_its_client_only_after_the_call_it_is_in(stage, store):
    stage.create(topic=stage.dlq)
    order = []

    class Watched(Collector):
        def _connect(self):
            client = super()._connect()

            class Client:
                def __getattr__(self, name):
                    return getattr(client, name)

                def consume(self, *words):
                    order.append("begins")
                    found = client.consume(*words)
                    order.append("ends")
                    return found

                def close(self):
                    order.append("closes")
                    client.close()

            return Client()

    task = asyncio.create_task(Watched(stage.kafka(), [stage.dlq], store, group=stage.group).run())
    await until(lambda: len(order) > 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert order[-2:] == ["ends", "closes"]


async def test_a_glob_finds_every_dead_letter_topic_and_no_other(stage, store):
    for topic in (f"{stage.topic}-a.dlq", f"{stage.topic}-b.dlq", f"{stage.topic}-c"):
        stage.create(topic=topic)
        stage.produce([{"value": topic.encode()}], topic=topic)
    await collect(stage, store, f"{stage.topic}-*.dlq")
    found = await letters(store)
    assert {letter.payload for letter in found} == {f"{stage.topic}-{n}.dlq".encode() for n in "ab"}
    assert {letter.origin for letter in found} == {f"kafka:{stage.topic}-a", f"kafka:{stage.topic}-b"}


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


async def test_collecting_once_ends_if_no_topic_matches_and_refuses_one_that_is_not_there(stage, store):
    assert (await collect(stage, store, f"{stage.topic}-*.dlq")).collected == 0
    with pytest.raises(SourceError, match="no such topic"):
        await collect(stage, store, f"{stage.topic}-misspelt.dlq")
