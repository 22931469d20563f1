"""Where partitions begin: known before they are read, also when the broker has only just started."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition
from tests.servers.kafka import Broker
from tests.servers.ports import free_port
from tests.sources.kafka.between import Between
from tests.sources.kafka.stage import LIMIT, Stage, running, until

from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.sources.kafka import Collector
from redrive.sources.kafka.client.positions import committed, done_beyond, start_of
from redrive.sources.kafka.offsets.done_map import write_map
from redrive.stores.memory import MemoryStore

PLACE = TopicPartition("orders", 0)


class Client:
    """Gives one of *answers* after the other to the question for what was committed."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def committed(self, _places, timeout):
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return [TopicPartition("orders", 0, answer)]


def ask(client, is_stopping=lambda: False):
    return committed(client, [PLACE], SystemClock(), is_stopping)


def test_what_was_committed_is_asked_for_until_it_is_known():
    away = KafkaError(KafkaError._TIMED_OUT)
    assert [place.offset for place in ask(Client(*[away] * 5, 7))] == [7]


def test_nothing_begins_if_it_is_not_known_when_the_consumer_stops():
    client = Client(*[KafkaError(KafkaError._TIMED_OUT)] * 5)
    assert ask(client, lambda: len(client.answers) < 3) == []


@pytest.mark.parametrize(
    "refusal",
    [KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), KafkaError(KafkaError._FATAL, "fenced", fatal=True)],
)
def test_a_refusal_is_not_asked_again(refusal):
    with pytest.raises(SourceError, match="cannot read the committed offsets"):
        ask(Client(refusal))


@pytest.mark.parametrize(
    ("offset", "reset", "start"),
    [(5, "earliest", 5), (-1001, "earliest", OFFSET_BEGINNING), (-1001, "latest", OFFSET_END), (0, "latest", 0)],
)
def test_a_partition_begins_at_an_offset_that_we_name(offset, reset, start):
    assert start_of(TopicPartition("orders", 0, offset), reset).offset == start


class Ends:
    """Gives one of *answers* after the other to the question for where a log ends."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def get_watermark_offsets(self, _place, timeout):
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return 0, answer


NOTED = TopicPartition("orders", 0, 3, write_map(3, [(4, 6)]))


def test_what_is_done_beyond_the_offset_is_asked_for_until_it_is_known():
    away = KafkaError(KafkaError._TRANSPORT)
    assert done_beyond(Ends(away, away, 9), NOTED, SystemClock(), lambda: False) == [(4, 6)]


def test_what_is_done_beyond_the_offset_is_not_asked_for_once_we_are_to_stop_or_the_log_is_gone():
    away, gone = KafkaError(KafkaError._TRANSPORT), KafkaError(KafkaError._UNKNOWN_PARTITION)
    client = Ends(away, away, away)
    assert done_beyond(client, NOTED, SystemClock(), lambda: len(client.answers) < 2) == []
    assert done_beyond(Ends(gone), NOTED, SystemClock(), lambda: False) == []


@pytest.fixture(scope="module")
def advertised():
    """A broker whose clients come by a port that is not its own."""
    port = free_port()
    with Broker(advertised_listeners=f"PLAINTEXT://127.0.0.1:{port}") as broker:
        yield broker, port


@pytest.mark.slow
@pytest.mark.parametrize(("after", "refusals"), [(0, 1), (0, 4), (1, 1)])
async def test_a_coordinator_that_is_only_just_starting_does_not_let_a_consumer_stand_still(
    advertised, after, refusals
):
    broker, port = advertised
    with (
        Between(port, broker.port, client="asks", after=after, refusals=refusals),
        closing(Stage(broker.bootstrap, f"refused-{after}-{refusals}")) as stage,
    ):
        stage.create()
        stage.produce([{"value": b"v"}])

        async def worker(record):
            pass

        async with running(stage.consumer(worker, settings={"client.id": "asks"})):
            await until(lambda: stage.committed() == 1)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 1])
async def test_a_coordinator_that_is_only_just_starting_does_not_let_a_collector_stand_still(advertised, after):
    broker, port = advertised
    store = MemoryStore()
    await store.open()
    with (
        Between(port, broker.port, client="asks", after=after, refusals=1),
        closing(Stage(broker.bootstrap, f"collected-{after}")) as stage,
    ):
        stage.create(topic=stage.dlq)
        stage.produce([{"value": b"v"}], topic=stage.dlq)
        collector = Collector(stage.kafka(settings={"client.id": "asks"}), [stage.dlq], store, group=stage.group)
        await asyncio.wait_for(collector.run(until_end=True), LIMIT)
        assert collector.collected == 1
    await store.close()
