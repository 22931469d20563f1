"""The producer of dead letters: what becomes of them when it breaks, and when a partition goes on."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError
from tests.sources.kafka.samples import partition, record

from redrive.engine.clock import SystemClock
from redrive.sources.kafka import ExecutionConfig, KafkaConfig
from redrive.sources.kafka.dead_letters.publisher import DeadLetterPublisher
from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus

CONFIG = KafkaConfig(settings={"test.mock.num.brokers": 1})  # a broker within the client
QUICK = ExecutionConfig(retry_backoff_ms=1, retry_jitter_ms=0, max_retries=1)


class Publisher(DeadLetterPublisher):
    """Hears the errors in *says*, by offset, before it hears the truth."""

    def __init__(self) -> None:
        self.says: dict[int, list[KafkaError]] = {}
        self.delivered: list[int] = []
        self.heard: list[str] = []
        super().__init__(
            CONFIG, "g", QUICK.policy, DeadLetterTopics(CONFIG), SystemClock(),
            delivered=lambda record: self.delivered.append(record.offset),
            halts=self,
        )  # fmt: skip

    def halt(self, _assignment, _why):
        self.heard.append("halt")

    def resume(self, _assignment):
        self.heard.append("resume")

    def _reported(self, letter, error, message):
        said = self.says.get(letter.record.offset)
        super()._reported(letter, said.pop() if said else error, message)


@pytest.fixture
def publisher():
    made = Publisher()
    yield made
    made.close()


def bury(publisher, count):
    of = partition()
    for offset in range(count):
        publisher.publish(CompletionEvent(record(offset, of=of), CompletionStatus.FAILURE, 1))


def wait(condition, publisher):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        publisher.poll()


def test_a_producer_that_is_broken_is_replaced_and_its_dead_letters_are_published(publisher):
    fatal = KafkaError(KafkaError._FATAL, "out of order", fatal=True)
    publisher.says = {1: [fatal], 2: [fatal]}
    first = publisher._producer
    bury(publisher, 5)
    first.flush(60)  # all reports are heard in one call, the fatal one in the middle
    wait(lambda: len(publisher.delivered) == 5, publisher)
    assert publisher._producer is not first
    assert (sorted(publisher.delivered), publisher.pending) == ([0, 1, 2, 3, 4], 0)


def test_a_partition_goes_on_only_when_none_of_its_dead_letters_is_refused_any_more(publisher):
    refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    publisher.says = {0: [refusal], 1: [refusal] * 3}
    bury(publisher, 2)
    wait(lambda: publisher.delivered == [0], publisher)
    assert "resume" not in publisher.heard
    wait(lambda: publisher.delivered == [0, 1], publisher)
    assert publisher.heard[-1] == "resume"
