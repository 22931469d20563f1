"""What follows when one record holds back its partition for too long."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.sources.kafka.samples import partition, record
from tests.sources.kafka.stage import LIMIT, running, until

from redrive.errors import SettingsError, SourceError
from redrive.sources.kafka import ExecutionConfig, KafkaConfig, Output
from redrive.sources.kafka.control.partition import Partition
from redrive.sources.kafka.control.stalls import Stalls, what_to_do
from redrive.sources.kafka.dead_letters.parked_keys import ParkedKeys
from redrive.sources.kafka.environment import read_configs
from redrive.sources.kafka.execution.batches import BatchExecutionEngine
from redrive.sources.kafka.execution.engine import AsyncExecutionEngine
from redrive.sources.kafka.execution.parking import ParkingWorkManager
from redrive.sources.kafka.execution.work_manager import WorkManager
from redrive.sources.kafka.records.completion import CompletionEvent, CompletionStatus


@pytest.mark.parametrize(
    ("policy", "still", "tried", "ended", "step"),
    [
        ("dlq_head", 10.0, True, False, "nothing"),  # exactly the limit is not above it
        ("leave_group", 10.0, True, False, "nothing"),
        ("warn", 11.0, True, False, "tell"),
        ("dlq_head", 11.0, True, False, "give_up"),
        ("dlq_head", 11.0, False, False, "tell"),  # it did nothing wrong: it never ran
        ("dlq_head", 11.0, True, True, "tell"),  # its dead letter is on its way already
        ("leave_group", 11.0, True, False, "leave"),
        ("leave_group", 11.0, False, False, "leave"),
        ("leave_group", 11.0, True, True, "tell"),
    ],
)
def test_what_follows_is_a_matter_of_policy_age_and_what_the_record_did(policy, still, tried, ended, step):
    assert what_to_do(policy, still, 10.0, tried=tried, ended=ended) == step


def watched(policy="dlq_head", count=3):
    """Return stalls of 10 s, a partition with *count* records that have begun, the records, and what is given up."""
    given_up = []
    stalls = Stalls(policy, 10.0, given_up.append)
    owner = Partition(partition(), 0, [], 0.0)
    records = [record(n, of=owner.assignment, attempts=1) for n in range(count)]
    for each in records:
        owner.tracker.add(each)
    stalls.admit(records)
    stalls.act([owner], 0.0)
    return stalls, owner, records, given_up


def test_the_first_record_that_is_not_done_is_given_up_and_no_other():
    stalls, owner, records, given_up = watched()
    owner.complete(records[0])
    owner.complete(records[2])
    stalls.act([owner], 1.0)  # the watermark moved: the time counts from here
    stalls.act([owner], 11.0)
    assert given_up == []
    stalls.act([owner], 12.0)
    [event] = given_up
    assert (event.offset, event.status, event.disposition, event.attempt) == (1, "failure", "stalled", 1)
    assert event.error == "Stalled: it held back the commits of its partition for 11 s"


def test_with_warn_nothing_is_given_up_and_the_sentence_is_the_same():
    stalls, owner, _, given_up = watched("warn")
    stalls.reasons([owner], 0.0)
    stalls.act([owner], 60.0)
    assert given_up == []
    assert stalls.reasons([owner], 60.0) == ["orders[0]: offset 0 has held back commits for 60 s"]


def test_leave_group_says_what_stands_still_and_what_to_do():
    stalls, owner, _, _ = watched("leave_group")
    with pytest.raises(SourceError, match=r"orders\[0\]: offset 0 .* 60 s; the consumer leaves .*stall_after_ms"):
        stalls.act([owner], 60.0)


def test_records_that_are_done_are_not_kept_in_memory():
    stalls = Stalls("dlq_head", 10.0, lambda event: None)
    owner = Partition(partition(), 0, [], 0.0)
    for n in range(5000):
        one = record(n, of=owner.assignment)
        owner.tracker.add(one)
        stalls.admit([one])
        owner.complete(one)
    assert len(stalls._open) <= 1000


def test_what_makes_no_sense_is_refused_by_its_name():
    with pytest.raises(SettingsError, match="stall_policy is 'drop' and must be warn, dlq_head or leave_group"):
        KafkaConfig(stall_policy="drop")
    with pytest.raises(SettingsError, match=r"needs kafka\.dlq_enabled"):
        KafkaConfig(stall_policy="dlq_head", dlq_enabled=False)


def test_the_policy_is_read_from_the_environment():
    _, kafka = read_configs({"KAFKA_STALL_POLICY": "dlq_head", "KAFKA_STALL_AFTER_MS": "5000"})
    assert (kafka.stall_policy, kafka.stall_after_ms) == ("dlq_head", 5000)


class Bench:
    """A work manager whose worker waits until it is let go."""

    def __init__(self, **execution) -> None:
        self.go, self.seen, self.heard = asyncio.Event(), [], []
        config = ExecutionConfig(retry_backoff_ms=60_000, **execution)
        self.work = WorkManager(AsyncExecutionEngine(self._worker, config), "key_hash", self.heard.extend)

    async def _worker(self, record):
        self.seen.append(record.offset)
        if record.offset == 0:
            await self.go.wait()
        if record.value == b"bad":
            raise RuntimeError("no")

    def give_up(self, one):
        self.work.give_up(CompletionEvent(one, CompletionStatus.FAILURE, one.attempts, None, "stalled"))


@pytest.mark.parametrize("value", [b"fine", b"bad"])
async def test_a_record_that_was_given_up_has_one_completion_however_its_try_ends(value):
    bench, owner = Bench(), partition()
    stuck, next_of_key = record(0, value=value, of=owner), record(1, of=owner)
    bench.work.take([stuck, next_of_key])
    await until(lambda: bench.seen == [0])
    bench.give_up(stuck)
    await until(lambda: len(bench.heard) == 2)  # its key goes on without it
    bench.give_up(stuck)
    bench.go.set()
    await until(lambda: not bench.work.engine.running)
    await bench.work.close(1)
    assert [(event.offset, str(event.status)) for event in bench.heard] == [(0, "failure"), (1, "success")]
    assert bench.work.engine.waiting == 0


async def test_a_record_that_waits_for_its_retry_is_given_up_and_not_tried_again():
    bench, owner = Bench(), partition()
    stuck = record(5, value=b"bad", of=owner)
    bench.work.take([stuck])
    await until(lambda: bench.work.engine.waiting == 1)
    bench.give_up(stuck)
    assert bench.work.engine.waiting == 0
    await until(lambda: bench.heard)
    await bench.work.close(1)
    assert (bench.seen, [str(event.status) for event in bench.heard]) == ([5], ["failure"])


async def test_one_that_ended_in_the_same_moment_keeps_its_own_end():
    bench, owner = Bench(), partition()
    one = record(3, of=owner)
    bench.work.take([one])
    await until(lambda: bench.heard)
    bench.give_up(one)
    await bench.work.close(1)
    assert [str(event.status) for event in bench.heard] == ["success"]


async def test_a_batch_that_fails_is_run_again_without_the_record_that_was_given_up():
    go, calls, heard, owner = asyncio.Event(), [], [], partition()

    async def worker(records):
        calls.append([each.offset for each in records])
        if len(calls) == 1:
            await go.wait()
            raise RuntimeError("all of them")

    work = WorkManager(BatchExecutionEngine(worker, ExecutionConfig(batch_size=10)), "unordered", heard.extend)
    records = [record(n, of=owner) for n in range(3)]
    work.take(records)
    await until(lambda: calls)
    work.give_up(CompletionEvent(records[0], CompletionStatus.FAILURE, 1, None, "stalled"))
    go.set()
    await until(lambda: len(heard) == 3)
    await work.close(1)
    assert calls == [[0, 1, 2], [1], [2]]
    assert sorted((event.offset, str(event.status)) for event in heard) == [
        (0, "failure"), (1, "success"), (2, "success"),
    ]  # fmt: skip


async def test_where_keys_are_parked_those_behind_a_record_that_was_given_up_are_parked_once():
    bench, owner = Bench(), partition()
    bench.work = ParkingWorkManager(bench.work.engine, "key_hash", bench.heard.extend, keys=ParkedKeys())
    stuck, behind = record(0, of=owner), record(1, of=owner)
    bench.work.take([stuck, behind])
    await until(lambda: bench.seen == [0])
    bench.give_up(stuck)
    bench.go.set()
    await until(lambda: not bench.work.engine.running and len(bench.heard) == 2)
    await bench.work.close(1)
    assert [(event.offset, event.disposition) for event in bench.heard] == [(0, "stalled"), (1, "parked")]


STALLING = {"stall_after_ms": 1500}  # longer than a busy machine keeps a record that does not stall
NO_LIMIT = {"task_timeout_ms": None, "shutdown_drain_timeout_ms": 200}


async def test_the_record_that_holds_back_commits_becomes_a_confirmed_dead_letter_and_its_key_goes_on(stage):
    stage.create()
    stage.produce([{"value": b"%d" % n, "key": b"k"} for n in range(5)])
    let_go, done = asyncio.Event(), []

    async def worker(record):
        if record.offset == 1:
            await let_go.wait()
        done.append(record.offset)

    consumer = stage.consumer(worker, stall_policy="dlq_head", execution=NO_LIMIT, **STALLING)
    async with running(consumer):
        await until(lambda: stage.committed() == 5)
        assert done == [0, 2, 3, 4]
        let_go.set()  # too late: it is a dead letter, and nothing comes of this
        await until(lambda: consumer.counts.processed == 4 and len(done) == 5)
    [letter] = stage.dead_letters()
    headers = dict(letter.headers())
    assert (letter.value(), headers["x-redrive-disposition"], headers["offset"]) == (b"1", b"stalled", b"1")
    assert stage.committed() == 5
    assert consumer.counts.failed == 1


async def test_a_thread_that_hangs_does_not_hold_back_its_partition_for_ever(stage):
    stage.create()
    stage.produce([{"value": b"%d" % n, "key": b"%d" % n} for n in range(20)])
    let_go = threading.Event()

    def worker(record):
        if record.offset == 0:
            let_go.wait(LIMIT)

    consumer = stage.consumer(worker, stall_policy="dlq_head", execution=NO_LIMIT, **STALLING)
    async with running(consumer):
        await until(lambda: stage.committed() == 20)
        let_go.set()
    assert [letter.value() for letter in stage.dead_letters()] == [b"0"]


async def test_with_warn_it_is_only_said(stage):
    stage.create()
    stage.produce([{"value": b"x"}])
    let_go = asyncio.Event()

    async def worker(record):
        await let_go.wait()

    consumer = stage.consumer(worker, execution=NO_LIMIT, **STALLING)
    async with running(consumer):
        await until(lambda: consumer.health.status == "degraded")
        assert "offset 0 has held back commits" in consumer.health.reasons[0]
        let_go.set()
        await until(lambda: stage.committed() == 1 and consumer.health.status == "green")
    assert stage.dead_letters() == []


async def test_leave_group_ends_the_consumer_with_an_error_and_leaves_the_record_to_the_next(stage):
    stage.create()
    stage.produce([{"value": b"%d" % n, "key": b"%d" % n} for n in range(5)])
    runs = []

    async def hangs(record):
        runs.append(record.offset)
        if record.offset == 2:
            await asyncio.Event().wait()

    async def works(record):
        runs.append(record.offset)

    with pytest.raises(SourceError, match="offset 2 has held back commits"):
        await asyncio.wait_for(
            stage.consumer(hangs, stall_policy="leave_group", execution=NO_LIMIT, **STALLING).run(), LIMIT
        )
    assert stage.committed() == 2
    async with running(stage.consumer(works)):
        await until(lambda: stage.committed() == 5)
    assert sorted(runs) == [0, 1, 2, 2, 3, 4]
    assert stage.dead_letters() == []


async def test_in_exactly_once_mode_the_outputs_of_a_record_that_was_given_up_are_never_sent(stage):
    out = f"{stage.topic}.out"
    stage.create()
    stage.create(topic=out)
    stage.produce([{"value": b"%d" % n, "key": b"k"} for n in range(3)])
    let_go, ended = asyncio.Event(), asyncio.Event()

    async def worker(record):
        if record.offset == 0:
            await let_go.wait()
            ended.set()
        return Output(topic=out, value=record.value)

    consumer = stage.consumer(worker, stall_policy="dlq_head", exactly_once=True, execution=NO_LIMIT, **STALLING)
    async with running(consumer):
        await until(lambda: len(stage.read(out, **{"isolation.level": "read_committed"})) == 2)
        let_go.set()
        await asyncio.wait_for(ended.wait(), LIMIT)
    sent = [message.value() for message in stage.read(out, **{"isolation.level": "read_committed"})]
    assert sorted(sent) == [b"1", b"2"]
    assert [letter.value() for letter in stage.dead_letters()] == [b"0"]
