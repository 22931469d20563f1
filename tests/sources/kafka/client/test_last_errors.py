"""After an error that leaves a consumer nothing to consume it stops and says the way out, instead of looking well."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tests.sources.kafka.stage import LIMIT, patiently, running, until

from redrive.errors import SourceError
from redrive.sources.kafka import Collector, KafkaConfig
from redrive.sources.kafka.client.errors import is_final, said
from redrive.stores.memory import MemoryStore

BRISK = {"heartbeat.interval.ms": 100}  # the classic protocol tells a member with its heartbeats that it is fenced


async def ignore(record):
    pass


@asynccontextmanager
async def twins(first, second, has_joined):
    """Run *first* and, once it *has_joined*, *second*; yield both tasks and stop both, however they ended."""
    tasks = [asyncio.create_task(first.run())]
    try:
        await until(has_joined)
        tasks.append(asyncio.create_task(second.run()))
        yield tasks
    finally:
        first.stop()
        second.stop()
        await asyncio.wait(tasks, timeout=LIMIT)


@pytest.mark.parametrize(
    ("protocol", "loser", "words"),
    [
        ("classic", 0, "Static consumer fenced.*; another member has taken this group_instance_id; give each its own"),
        ("consumer", 1, "still used by another.*; another member has this group_instance_id; give each its own or"),
    ],
    ids=["classic", "consumer"],
)
async def test_a_member_whose_name_another_one_has_stops_and_says_so(stage, protocol, loser, words):
    stage.create()
    settings = BRISK if protocol == "classic" else {}
    members = [
        stage.consumer(ignore, group_instance_id="one", group_protocol=protocol, settings=settings) for _ in range(2)
    ]
    async with twins(*members, has_joined=lambda: members[0].assigned == 1) as tasks:
        with pytest.raises(SourceError, match=rf"cannot consume .*{words}"):
            await asyncio.wait_for(tasks[loser], LIMIT)
        assert members[loser].health.status == "red"
        stage.produce([{"value": b"x"}] * 5)
        await until(lambda: stage.committed() == 5)
        assert not tasks[1 - loser].done()
    assert tasks[1 - loser].exception() is None


async def test_a_collector_whose_name_another_one_takes_stops_and_says_so(stage):
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"x"}], topic=stage.dlq)
    kafka = stage.kafka(consumer_settings={"group.instance.id": "one", **BRISK})
    store = MemoryStore()
    await store.open()
    first, second = (Collector(kafka, [stage.dlq], store, group=stage.group) for _ in range(2))
    async with twins(first, second, has_joined=lambda: first.collected == 1) as tasks:
        with pytest.raises(SourceError, match=r"cannot collect .*; another member has taken this group_instance_id"):
            await asyncio.wait_for(tasks[0], LIMIT)
        stage.produce([{"value": b"x"}], topic=stage.dlq)
        await until(lambda: second.collected == 1)
    await store.close()


def place_group(stage, offset):
    """Set the group's offset, as an operator does while no member is there."""
    with closing(Consumer({"bootstrap.servers": stage.bootstrap, "group.id": stage.group})) as client:
        place = TopicPartition(stage.topic, 0, offset)
        patiently(lambda: commit(client, place))


def commit(client, place):
    [answer] = client.commit(offsets=[place], asynchronous=False)
    if answer.error is not None:
        raise KafkaException(answer.error)


@pytest.mark.parametrize(
    ("committed", "why"), [(None, "no previously committed offset"), (500, "Offset out of range")], ids=["none", "far"]
)
async def test_without_an_offset_to_begin_at_a_consumer_that_may_not_choose_one_stops_and_says_so(
    stage, committed, why
):
    stage.create()
    stage.produce([{"value": b"x"}] * 3)
    if committed is not None:
        place_group(stage, committed)
    consumer = stage.consumer(ignore, auto_offset_reset="error")
    words = rf"cannot consume {stage.topic}\[0\]: .*{why}.*; set auto_offset_reset to earliest or latest, or set"
    with pytest.raises(SourceError, match=words):
        await asyncio.wait_for(consumer.run(), LIMIT)
    assert consumer.health.status == "red"
    assert stage.committed() == committed
    place_group(stage, 1)
    async with running(stage.consumer(ignore, auto_offset_reset="error")):
        await until(lambda: stage.committed() == 3)


@pytest.mark.parametrize(
    ("cause", "way"),
    [
        (KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED).str(), "allow this client the group"),
        ("Broker: it rains", "this client cannot go on: fix the cause and start it again"),
    ],
)
def test_the_way_out_of_a_fatal_error_is_that_of_its_cause(cause, way):
    error = KafkaError(KafkaError._FATAL, f"Fatal error: {cause}: heartbeat failed")
    assert is_final(error)
    assert said(error, KafkaConfig(bootstrap_servers="nowhere:1")) == f"{error.str()}; {way}"
