"""Exactly once: outputs, dead letters and offsets commit together or not at all, whatever happens to the consumer."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.servers.kafka import Broker
from tests.sources.kafka.samples import partition, record
from tests.sources.kafka.stage import LIMIT, Stage, running, until

from redrive import Reject
from redrive.errors import SettingsError
from redrive.sources.kafka import ExecutionConfig, KafkaConfig, Output, ParallelConsumer
from redrive.sources.kafka.control import transactions
from redrive.sources.kafka.control.transactions import Transactions
from redrive.sources.kafka.offsets.done_map import fits, read_map
from redrive.sources.kafka.offsets.tracker import OffsetTracker

ROOT = Path(__file__).parents[4]
STEPS = ["kafka.tx_begun", "kafka.tx_produced", "kafka.tx_before_commit", "kafka.tx_after_commit"]
COMMITTED = {"isolation.level": "read_committed"}


def out(stage):
    return f"{stage.topic}.out"


def values(stage, topic):
    return Counter(int(message.value()) for message in stage.read(topic, **COMMITTED))


async def test_outputs_dead_letters_and_offsets_commit_together(stage):
    stage.create(partitions=2)
    stage.create(topic=out(stage))
    stage.produce([{"value": b"%d" % n, "key": b"k%d" % n} for n in range(100)])

    async def worker(record):
        if int(record.value) % 10 == 3:
            raise Reject("bad")
        return [Output(topic=out(stage), value=record.value, key=record.key, headers=(("h", b"1"),))]

    async with running(stage.consumer(worker, exactly_once=True)) as task:
        await until(lambda: task.done() or sum(stage.committed(p) or 0 for p in (0, 1)) == 100)
    assert values(stage, out(stage)) == {n: 1 for n in range(100) if n % 10 != 3}
    assert values(stage, stage.dlq) == {n: 1 for n in range(100) if n % 10 == 3}


async def test_an_output_topic_that_is_missing_holds_up_its_own_partition_alone(stage):
    stage.create(partitions=2)
    stage.create(topic=out(stage))
    stage.produce([{"value": b"1", "partition": 0}])
    absent = f"{stage.topic}.absent"

    async def worker(record):
        return Output(topic=absent if record.partition == 0 else out(stage), value=record.value)

    patient = {"exactly_once": True, "transaction_timeout_ms": int(LIMIT * 1000)}  # the client would wait as long
    consumer = stage.consumer(worker, execution={"max_retries": 1}, **patient)
    async with running(consumer):
        await until(lambda: consumer.health.status == "red")
        assert any(
            f"need the topic '{absent}', which does not exist; create it" in why for why in consumer.health.reasons
        )
        stage.produce([{"value": b"2", "partition": 1}])
        await until(lambda: stage.committed(1) == 1)
        stage.create(topic=absent)
        await until(lambda: stage.committed(0) == 1)
        await until(lambda: consumer.health.status == "green")
    assert (values(stage, out(stage)), values(stage, absent)) == ({2: 1}, {1: 1})


@pytest.mark.slow
async def test_an_output_topic_is_made_by_a_broker_that_makes_topics():
    with Broker(auto_create_topics_enable="true") as broker, closing(Stage(broker.bootstrap, "made")) as stage:
        stage.create()
        stage.produce([{"value": b"1"}])

        async def worker(record):
            return Output(topic=out(stage), value=record.value)

        async with running(stage.consumer(worker, exactly_once=True)):
            await until(lambda: stage.committed() == 1)
        assert values(stage, out(stage)) == {1: 1}


async def test_what_a_failed_try_returned_late_is_not_sent(stage):
    stage.create()
    stage.create(topic=out(stage))
    stage.produce([{"value": b"1"}])
    over = asyncio.Event()

    async def worker(record):
        if record.attempt == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await over.wait()
                return Output(topic=out(stage), value=b"666")
        over.set()
        return Output(topic=out(stage), value=b"1")

    slow = {"task_timeout_ms": 50}
    async with running(stage.consumer(worker, exactly_once=True, execution=slow)):
        await until(lambda: stage.committed() == 1)
    assert values(stage, out(stage)) in ({1: 1}, {666: 1})  # one try succeeded, and only its output is there


UNSENDABLE = {
    "text": (["text"], b"TypeError"),
    "value": (Output(topic="fine", value=1), b"ValidationError"),
    "headers": (Output(topic="fine", value=b"", headers=(("h", 1),)), b"ValidationError"),
    "topic": (Output(topic="not a topic", value=b""), b"ValueError"),
}


@pytest.mark.parametrize("name", UNSENDABLE)
async def test_a_worker_that_returns_what_cannot_be_sent_fails(stage, name):
    stage.create()
    stage.produce([{"value": b"1"}])
    returned, error = UNSENDABLE[name]

    async def worker(record):
        return returned

    async with running(stage.consumer(worker, exactly_once=True)) as task:
        await until(lambda: task.done() or stage.committed() == 1)
    [letter] = stage.dead_letters()
    assert error in dict(letter.headers())["x-redrive-exception"]


async def test_a_topic_that_takes_nothing_halts_and_goes_on_after_repair(stage):
    stage.create()
    stage.produce([{"value": b"%d" % n} for n in range(5)])

    async def worker(record):
        return Output(topic=out(stage), value=record.value)

    consumer = stage.consumer(worker, exactly_once=True, transaction_timeout_ms=1000)
    async with running(consumer):
        await until(lambda: consumer.health.status == "red")
        assert stage.committed() is None
        stage.create(topic=out(stage))
        await until(lambda: stage.committed() == 5)
        await until(lambda: consumer.health.status == "green")
    assert values(stage, out(stage)) == dict.fromkeys(range(5), 1)


@pytest.mark.parametrize("trouble", ["no such topic", "too large"])
async def test_a_message_that_is_never_taken_halts_the_partition_of_its_record_and_no_other(stage, trouble):
    stage.create(partitions=2)
    stage.create(topic=out(stage), max_message_bytes="1000")
    stage.produce([{"value": b"%d" % n, "partition": n % 2} for n in range(20)])

    async def worker(record):
        if record.value == b"0":
            topic = f"{stage.topic}.nowhere" if trouble == "no such topic" else out(stage)
            return Output(topic=topic, value=b"1" * 5000)
        return Output(topic=out(stage), value=record.value)

    together = {"retry_jitter_ms": 0, "max_retry_backoff_ms": 500}  # both partitions are tried in the same round
    consumer = stage.consumer(worker, exactly_once=True, transaction_timeout_ms=1000, execution=together)
    async with running(consumer):
        await until(lambda: stage.committed(1) == 10)
        await until(lambda: consumer.health.status == "red")
        assert any(f"{stage.topic}[0]: its transactions fail" in reason for reason in consumer.health.reasons)
        stage.produce([{"value": b"%d" % n, "partition": 1} for n in range(21, 31)])
        await until(lambda: stage.committed(1) == 20)
    assert stage.committed(0) is None
    assert values(stage, out(stage)) == dict.fromkeys([*range(1, 20, 2), *range(21, 31)], 1)


def test_settings_that_would_be_ignored_are_refused_all_at_once():
    with pytest.raises(SettingsError) as refused:
        KafkaConfig(
            exactly_once=True, crash_loop_limit=5, dlq_oversize="pointer", dlq_spill_folder="x", dlq_flush_timeout_ms=1
        )
    names = ("crash_loop_limit", "dlq_flush_timeout_ms", "dlq_oversize", "dlq_spill_folder")
    assert all(any(name in each for each in refused.value.problems) for name in names)
    KafkaConfig(exactly_once=True, crash_loop_limit=0)


def test_what_would_be_done_is_told_without_doing_it():
    tracker = OffsetTracker()
    of = partition()
    for offset in range(10):
        tracker.add(record(offset, of=of))
    assert tracker.if_done({0, 1, 4, 5}) == (2, [(4, 6)])
    assert tracker.if_done(set(range(10))) == (10, [])
    assert tracker.watermark == 0


def test_a_map_says_whether_it_leaves_something_out():
    ranges = [(n, n + 1) for n in range(2, 4000, 2)]
    assert fits(0, ranges)
    assert not fits(0, ranges, limit=20)
    assert read_map(0, "", end=10) == []


def test_what_cannot_be_exact_is_refused():
    with pytest.raises(SettingsError, match="exactly_once"):
        ParallelConsumer(
            ["a"], print, group="g", execution=ExecutionConfig(mode="process"), kafka=KafkaConfig(exactly_once=True)
        )


class Runs:
    """Starts exactly-once consumers one after the other on the same topic and group."""

    records = 200

    def __init__(self, stage) -> None:
        self.stage = stage
        stage.create(partitions=2)
        stage.create(topic=out(stage))
        stage.create(topic=stage.dlq, partitions=2)
        stage.produce([{"value": b"%d" % n, "key": b"k%d" % (n % 7)} for n in range(self.records)])

    def start(self, failpoints: str = "") -> subprocess.Popen[bytes]:
        words = [self.stage.bootstrap, self.stage.topic, self.stage.group, str(self.records)]
        env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "REDRIVE_FAILPOINTS": failpoints}
        return subprocess.Popen([sys.executable, "-m", "tests.sources.kafka.exact", *words], env=env, cwd=ROOT)

    def check(self) -> None:
        assert values(self.stage, out(self.stage)) == {n: 1 for n in range(self.records) if n % 10 != 3}
        assert values(self.stage, self.stage.dlq) == {n: 1 for n in range(self.records) if n % 10 == 3}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_consumer_killed_at_any_step_sends_nothing_twice(stage, step):
    runs = Runs(stage)
    for passes in (1, 2, 3):
        assert runs.start(f"{step}=kill@{passes}").wait(LIMIT) in {-signal.SIGKILL, 0}
    assert runs.start().wait(LIMIT) == 0
    runs.check()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["kafka.tx_produced", "kafka.tx_before_commit"])
def test_a_consumer_that_stood_still_in_a_transaction_cannot_commit_it_over_its_successor(stage, step):
    runs = Runs(stage)
    first = runs.start(f"{step}=stop@2")
    os.waitid(os.P_PID, first.pid, os.WSTOPPED)
    try:
        assert runs.start().wait(LIMIT) == 0
        first.send_signal(signal.SIGCONT)
        assert first.wait(LIMIT) == 0  # it tries to commit, hears that it may not, joins again, and finds all done
    finally:
        first.kill()
        first.wait()
    runs.check()


class _Unheard:
    """A producer whose first commit is carried out, or not, without an answer."""

    def __init__(self, producer, answers) -> None:
        self._producer, self._answers = producer, answers

    def __getattr__(self, name):
        return getattr(self._producer, name)

    def commit_transaction(self, limit):
        if self._answers:
            if self._answers.pop():
                self._producer.commit_transaction(limit)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))
        self._producer.commit_transaction(limit)

    def abort_transaction(self, _limit):
        raise KafkaException(KafkaError(KafkaError._CONFLICT, "a commit is under way"))


@pytest.mark.parametrize("is_carried_out", [True, False])
async def test_a_commit_that_nobody_answered_is_not_sent_again_unless_it_was_not_carried_out(
    stage, monkeypatch, is_carried_out
):
    stage.create()
    stage.create(topic=out(stage))
    stage.produce([{"value": b"%d" % n, "key": b"%d" % n} for n in range(20)])
    connect, answers = Transactions._connect, [is_carried_out]
    monkeypatch.setattr(Transactions, "_connect", lambda self: _Unheard(connect(self), answers))

    async def worker(record):
        return Output(topic=out(stage), value=record.value)

    consumer = stage.consumer(worker, exactly_once=True)
    async with running(consumer):
        await until(lambda: not answers and stage.committed() == 20)
        await until(lambda: consumer.counts.in_flight == 0)
    assert values(stage, out(stage)) == dict.fromkeys(range(20), 1)


class _Hanging:
    """A producer whose first call for its offsets never returns, as while its coordinator has left the cluster."""

    def __init__(self, producer, calls) -> None:
        self._producer, self._calls = producer, calls

    def __getattr__(self, name):
        return getattr(self._producer, name)

    def send_offsets_to_transaction(self, *arguments):
        if self._calls:
            self._calls.pop().wait()
        self._producer.send_offsets_to_transaction(*arguments)


async def test_a_client_that_never_returns_from_a_transaction_is_replaced_and_nothing_is_sent_twice(stage, monkeypatch):
    stage.create()
    stage.create(topic=out(stage))
    stage.produce([{"value": b"%d" % n, "key": b"%d" % n} for n in range(20)])
    connect, released = Transactions._connect, threading.Event()
    calls = [released]
    monkeypatch.setattr(Transactions, "_connect", lambda self: _Hanging(connect(self), calls))
    monkeypatch.setattr(transactions, "_LIMIT", 1.0)

    async def worker(record):
        return Output(topic=out(stage), value=record.value)

    async with running(stage.consumer(worker, exactly_once=True)):
        await until(lambda: stage.committed() == 20)
        released.set()  # the old client is fenced by now: its transaction comes to nothing
    assert values(stage, out(stage)) == dict.fromkeys(range(20), 1)
