"""No broker answers: said once, in words, and seen in the health; the client's own lines stay away."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError
from tests.servers.kafka import Broker
from tests.sources.kafka.stage import LIMIT, Stage, running, until

from redrive.engine.clock import SystemClock
from redrive.sources.kafka import Collector, KafkaConfig
from redrive.sources.kafka.client.outage import Outage
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock

NAMED = {"client.id": "ours"}  # by which its own lines are known
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def own(broker):  # the shared one must be possible; this one may be killed
    with Broker() as mine, closing(Stage(mine.bootstrap, "outage")) as stage:
        stage.create()
        yield mine, stage


def lines(caplog, words):
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


async def fine(record):
    pass


async def test_a_consumer_without_a_broker_is_red_says_so_once_and_goes_on(own, caplog, capfd):
    broker, stage = own
    consumer = stage.consumer(fine, settings=NAMED)
    async with running(consumer):
        stage.produce([{"value": b"before"}])
        await until(lambda: consumer.counts.processed == 1)
        began = time.monotonic()
        broker.kill()
        await until(lambda: consumer.health.status == "red")
        assert any(f"no broker answers at {broker.bootstrap}" in each for each in consumer.health.reasons)
        broker.start()
        await until(lambda: consumer.health.status == "green")
        took = time.monotonic() - began
        stage.produce([{"value": b"after"}])
        await until(lambda: consumer.counts.processed == 2)
    assert 1 <= len(lines(caplog, "no broker answers")) <= 1 + took // 60
    assert len(lines(caplog, "a broker answers again")) == 1
    assert "ours#" not in capfd.readouterr().err


async def test_a_collector_without_a_broker_says_so_once_and_goes_on(own, caplog, capfd):
    broker, stage = own
    store = MemoryStore()
    await store.open()
    collector = Collector(stage.kafka(settings=NAMED), [stage.topic], store, group=stage.group)
    collecting = asyncio.ensure_future(collector.run())
    stage.produce([{"value": b"before"}])
    await until(lambda: stage.committed() == 1)  # a commit waits for a broker, and says nothing meanwhile
    broker.kill()
    await until(lambda: lines(caplog, "no broker answers"))
    broker.start()
    stage.produce([{"value": b"after"}])
    await until(lambda: collector.collected == 2 and lines(caplog, "a broker answers again"))
    collector.stop()
    await asyncio.wait_for(collecting, LIMIT)
    await store.close()
    assert "ours#" not in capfd.readouterr().err


def down():
    return KafkaError(KafkaError._ALL_BROKERS_DOWN)


def test_a_lost_connection_is_no_outage_while_a_broker_answers(stage, caplog):
    outage = Outage(stage.kafka(), SystemClock(), patience=LIMIT)
    with closing(Consumer({"bootstrap.servers": stage.bootstrap, "group.id": "g"})) as consumer:
        outage(down())
        outage.look(consumer)
    assert outage.reason == ""
    assert not caplog.records


def test_an_outage_is_said_again_after_a_minute_and_asked_for_every_five_seconds(caplog):
    clock, config = FakeClock(), KafkaConfig(bootstrap_servers=NOWHERE)
    outage = Outage(config, clock, patience=0.01)
    with closing(Consumer({**config.client_settings("consumer"), "group.id": "g", "error_cb": outage})) as consumer:
        outage(down())
        said = []
        for _ in range(25):
            outage.look(consumer)
            said.append(len(lines(caplog, "no broker answers")))
            clock.advance(5)
    assert said == [1] * 12 + [2] * 12 + [3]


def test_nobody_is_asked_as_long_as_there_is_no_doubt():
    class Never:
        def list_topics(self, *_words, **_options):
            raise AssertionError("asked")

    outage = Outage(KafkaConfig(bootstrap_servers=NOWHERE), FakeClock())
    outage(KafkaError(KafkaError._TRANSPORT, "one of them is away"))
    outage.look(Never())
    assert outage.reason == ""


def test_one_broker_that_is_away_is_passed_on_once_a_minute(caplog):
    caplog.set_level("INFO")
    clock = FakeClock()
    outage = Outage(KafkaConfig(bootstrap_servers=NOWHERE), clock)
    for _ in range(70):
        outage(KafkaError(KafkaError._TRANSPORT, "node 2: connection refused"))
        clock.advance(1)
    assert lines(caplog, "node 2") == ["the Kafka client reports: node 2: connection refused"] * 2
