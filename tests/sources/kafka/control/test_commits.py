"""What the broker refuses was not committed: it is known as such, told of, and committed later."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tests.sources.kafka.samples import partition, record

from redrive.sources.kafka.control.commits import Commits
from redrive.sources.kafka.control.partition import Partition
from redrive.sources.kafka.offsets.done_map import read_map

ERRORS = [
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_METADATA_TOO_LARGE,
    KafkaError._NO_OFFSET,
]


class Client:
    """Stands for the Kafka client: answers commits as it is told, and keeps those that it was asked for."""

    def __init__(self, error: int | None = None) -> None:
        self.error, self.asked = error, []
        self.longest = 1 << 20

    def commit(self, *, offsets, asynchronous):
        self.asked.append(offsets)
        if self.error is not None:
            raise KafkaException(KafkaError(self.error))
        if any(len(each.metadata) > self.longest for each in offsets):
            raise KafkaException(KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE))
        return None if asynchronous else offsets


def moved(done=range(3), received=10):
    """A partition with *received* records of which those in *done* are handled."""
    owner = partition()
    found = Partition(owner, 0, [], 0.0)
    records = [record(n, of=owner) for n in range(received)]
    for each in records:
        found.tracker.add(each)
    for n in done:
        found.complete(records[n])
    return found


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("at_the_end", [False, True], ids=["on the way", "at the end"])
def test_a_commit_that_is_refused_was_none_and_is_made_later(code, at_the_end):
    commits, client, place = Commits(0.01), Client(code), moved()
    before = place.committed
    if at_the_end:
        commits.now(client, [place])
    else:
        commits.step(client, [place], 1.0, idle=True)
    assert place.committed == before
    assert (commits.failures, bool(commits.last_error)) == (1, True)
    client.error = None
    commits.now(client, [place])
    assert place.committed[0] == client.asked[-1][0].offset == 3
    assert commits.last_error == ""


def test_an_answer_that_refuses_one_partition_commits_the_other():
    commits, client = Commits(0.01), Client()
    good, bad = moved(), Partition(partition(1), 0, [], 0.0)
    one = record(0, of=bad.assignment)
    bad.tracker.add(one)
    bad.complete(one)
    commits.step(client, [good, bad], 1.0, idle=True)
    refused = SimpleNamespace(topic="orders", partition=1, offset=1, error=KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
    commits.answered(None, [TopicPartition("orders", 0, 3), refused])
    assert good.committed[0] == 3
    assert bad.committed[0] == 0
    assert bad.dirty


def test_an_answer_that_does_not_name_a_partition_committed_nothing_of_it():
    commits, client, place = Commits(0.01), Client(), moved()
    commits.step(client, [place], 1.0, idle=True)
    commits.answered(None, [])
    assert place.committed[0] == 0
    assert place.dirty


def test_a_commit_that_nobody_answers_is_made_again():
    commits, client, place = Commits(0.01), Client(), moved()
    commits.step(client, [place], 1.0, idle=True)
    place.dirty = True
    commits.step(client, [place], 2.0, idle=True)
    assert len(client.asked) == 1
    commits.step(client, [place], 40.0, idle=True)
    assert len(client.asked) == 2


def test_an_error_that_lasts_is_logged_once_a_minute_and_another_one_at_once(caplog):
    commits, client, place = Commits(0.01), Client(KafkaError._FATAL), moved()
    for n in range(1000):
        commits.step(client, [place], 100.0 + n * 0.05, idle=True)
    assert (commits.failures, len(caplog.messages)) == (1000, 1)
    for code in (KafkaError._TRANSPORT, KafkaError._FATAL) * 2:
        client.error = code
        commits.step(client, [place], commits._last + 0.05, idle=True)
    assert len(caplog.messages) == 2
    commits.step(client, [place], 161.0, idle=True)
    assert len(caplog.messages) == 3
    assert "Local: Fatal error" in caplog.messages[0] == caplog.messages[2]


@pytest.mark.parametrize("longest", [2000, 300, 100])
def test_a_broker_that_allows_less_metadata_gets_the_beginning_of_the_map(longest):
    commits, client = Commits(0.01), Client()
    client.longest = longest
    place = moved(done=[n for n in range(1, 20_000) if n % 7 % 2], received=20_000)
    for _ in range(12):
        commits.now(client, [place])
    offset, text = place.committed
    assert offset == 0
    assert longest / 4 < len(text) <= longest
    kept = read_map(0, text, end=20_000)
    assert len(kept) > longest / 10
    assert all(n % 7 % 2 for low, high in kept for n in range(low, high))
