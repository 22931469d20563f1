"""Dead-letter topics of any producer in the store: kept once, worked on like any letter, sent home on replay."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import AdminClient
from tests.sources.kafka.collect.collected import CONNECT, SHARE, SPRING, collect, letters
from tests.sources.kafka.stage import LIMIT, until

from redrive import Status
from redrive.errors import QueueFull, SourceError, StoreUnavailable
from redrive.sources.kafka import Collector
from redrive.stores.memory import MemoryStore


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


async def test_collecting_once_ends_if_no_topic_matches_and_refuses_one_that_is_not_there(stage, store):
    assert (await collect(stage, store, f"{stage.topic}-*.dlq")).collected == 0
    with pytest.raises(SourceError, match="no such topic"):
        await collect(stage, store, f"{stage.topic}-misspelt.dlq")
