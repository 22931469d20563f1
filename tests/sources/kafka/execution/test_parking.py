"""Parked keys: after a dead letter nothing of its key runs before it, through restarts, until it is released."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Consumer, KafkaError
from tests.sources.kafka.samples import partition, record
from tests.sources.kafka.stage import running, until

from redrive import Reject
from redrive.engine.clock import SystemClock
from redrive.errors import SettingsError, SourceError
from redrive.sources.kafka import KafkaConfig, ParallelConsumer
from redrive.sources.kafka.dead_letters.parked_keys import ParkedKeys, Parking
from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus
from redrive.sources.kafka.records.disposition import Disposition
from redrive.sources.kafka.replay.unpark import parked_keys, unpark


def dispositions(stage):
    return [(m.value(), dict(m.headers())["x-redrive-disposition"].decode()) for m in stage.dead_letters()]


class Shop:
    """Handles records, and rejects `bad` until it is repaired."""

    def __init__(self) -> None:
        self.handled: list[bytes] = []
        self.repaired = False

    async def __call__(self, record) -> None:
        if record.value == b"bad" and not self.repaired:
            raise Reject("bad")
        self.handled.append(record.value)


async def test_later_records_of_a_key_are_parked_in_order_and_other_keys_flow(stage):
    stage.create()
    values = [b"1", b"bad", b"2", b"3", b"4"]
    stage.produce([{"value": value, "key": b"k"} for value in values] + [{"value": b"other", "key": b"o"}])
    shop = Shop()
    async with running(stage.consumer(shop, dlq_park_keys=True)):
        await until(lambda: stage.committed() == 6)
    assert shop.handled == [b"1", b"other"]
    assert dispositions(stage) == [(b"bad", "terminal"), *((v, "parked") for v in (b"2", b"3", b"4"))]
    assert parked_keys(stage.kafka(), stage.dlq) == {b"k": 1}


async def test_a_key_stays_parked_after_a_restart_and_runs_in_order_once_unparked(stage):
    stage.create(partitions=3)
    stage.produce([{"value": value, "key": b"k", "partition": 1} for value in (b"bad", b"1")])
    shop = Shop()
    async with running(stage.consumer(shop, dlq_park_keys=True)):
        await until(lambda: stage.committed(1) == 2)
    stage.produce([{"value": b"2", "key": b"k", "partition": 1}])
    consumer = stage.consumer(shop, dlq_park_keys=True)
    async with running(consumer):
        await until(lambda: stage.committed(1) == 3)
        assert shop.handled == []
        shop.repaired = True
        receipt = await asyncio.to_thread(unpark, stage.kafka(), stage.dlq, "k")
        assert receipt.replayed == 3
        await until(lambda: len(shop.handled) == 3)
        assert shop.handled == [b"bad", b"1", b"2"]
        assert parked_keys(stage.kafka(), stage.dlq) == {}
        owner = consumer._poller._partitions.at(stage.topic, 1).assignment
        keys = consumer._poller._results._parking._keys
        await until(lambda: not keys.of(owner))  # it has read the tombstone
        stage.produce([{"value": b"3", "key": b"k", "partition": 1}])
        await until(lambda: shop.handled[-1] == b"3")


async def test_a_topic_of_parked_keys_that_would_forget_them_is_refused(stage):
    stage.create()
    stage.create(topic=f"{stage.dlq}.parked", cleanup_policy="delete")
    with pytest.raises(SourceError, match="is not compacted and would forget"):
        await stage.consumer(Shop(), dlq_park_keys=True).run()


def test_parking_without_an_order_of_keys_is_refused():
    with pytest.raises(SettingsError, match="key_hash"):
        ParallelConsumer(["a"], print, group="g", ordering="unordered", kafka=KafkaConfig(dlq_park_keys=True))


async def test_partitions_that_share_one_place_for_their_parked_keys_all_know_them(stage):
    stage.create(partitions=2)
    stage.create(topic=f"{stage.dlq}.parked", cleanup_policy="compact")  # made by hand, with fewer partitions
    keys = {0: b"a", 1: b"b"}
    stage.produce([{"value": b"bad", "key": key, "partition": number} for number, key in keys.items()])
    shop = Shop()
    async with running(stage.consumer(shop, dlq_park_keys=True)):
        await until(lambda: [stage.committed(number) for number in keys] == [1, 1])
    stage.produce([{"value": b"later", "key": key, "partition": number} for number, key in keys.items()])
    consumer = stage.consumer(shop, dlq_park_keys=True)
    async with running(consumer):
        await until(lambda: [stage.committed(number) for number in keys] == [2, 2])
        assert shop.handled == []
        shop.repaired = True
        for key in keys.values():
            await asyncio.to_thread(unpark, stage.kafka(), stage.dlq, key.decode())
        owners = [each.assignment for each in consumer._poller._partitions.all]
        parked = consumer._poller._results._parking._keys
        await until(lambda: not any(parked.of(owner) & {b"a", b"b"} for owner in owners))
        await until(lambda: len(shop.handled) == 4)


def test_a_record_that_was_parked_when_its_key_was_unparked_runs_and_does_not_park_the_key_again(stage):
    stage.create()
    config = stage.kafka(dlq_park_keys=True)
    topics = DeadLetterTopics(config)
    topics.prepare([stage.topic])
    published, again = [], []
    parking = Parking(config, topics, SystemClock(), ParkedKeys(), published.append, again.append)
    late = record(7, of=partition(topic=stage.topic))
    parking.bury(CompletionEvent(late, CompletionStatus.FAILURE, 0, disposition=Disposition.PARKED))
    assert parking._producer.flush(60) == 0
    parking.close()
    assert (published, again) == ([], [[late]])
    stage.await_topics(f"{stage.dlq}.parked")
    assert parked_keys(config, stage.dlq) == {}


def test_keys_that_cannot_be_read_are_not_no_keys(stage, monkeypatch):
    stage.create(topic=f"{stage.dlq}.parked", cleanup_policy="compact")

    class Refused:
        def error(self):
            return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)

    class Client(Consumer):
        def consume(self, *_words):
            return [Refused()]

    stage.produce([{"value": b"1", "key": b"k"}], topic=f"{stage.dlq}.parked")
    monkeypatch.setattr("redrive.sources.kafka.replay.reader.Consumer", Client)
    with pytest.raises(SourceError, match="cannot read"):
        parked_keys(stage.kafka(), stage.dlq)
