"""
What users of an earlier parallel consumer saw, and must not see here.

Each test is named after what they saw. The parts that need no broker are tested beside what
they are about as well: the holes and the late start in test_offsets.py, the worker processes in
test_engines.py.
"""

from __future__ import annotations

import asyncio
import time

import pytest
from confluent_kafka import TopicPartition
from tests.sources.kafka import workers
from tests.sources.kafka.stage import LIMIT, running, until

from redrive import Reject
from redrive.errors import SettingsError
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.replay import replay

BRISK = {"heartbeat.interval.ms": 100}  # a member hears of the next at once


async def rejects(record):
    raise Reject("never")


async def test_dead_letters_vanished_when_the_topic_was_missing(stage):
    stage.create()
    stage.produce([{"value": b"bad", "key": b"%d" % n} for n in range(20)])
    consumer = stage.consumer(rejects, dlq_create_topics=False, dlq_flush_timeout_ms=200, execution={"max_retries": 1})
    async with running(consumer):
        await until(lambda: consumer.health.status == "red")
        assert not stage.committed()
        stage.create(topic=stage.dlq)
        await until(lambda: stage.committed() == 20)
    assert len({dict(letter.headers())["x-redrive-id"] for letter in stage.dead_letters()}) == 20


async def test_a_timed_out_message_was_committed_without_a_dead_letter(stage):
    stage.create()
    stage.produce([{"value": b"x"}])
    execution = {"mode": "process", "task_timeout_ms": 200, "max_retries": 2}
    async with running(stage.consumer(workers.hangs, execution=execution)):
        await until(lambda: stage.committed() == 1)
    [letter] = stage.dead_letters()
    assert dict(letter.headers())["x-retry-attempt"] == b"2"
    assert dict(letter.headers())["x-redrive-disposition"] == b"timeout"


async def test_the_neighbours_of_a_crashing_message_were_never_handled(stage):
    stage.create()
    stage.produce([{"value": b"poison" if n == 30 else b"x", "key": b"%d" % n} for n in range(64)])
    async with running(stage.consumer(workers.dies_if_poison, execution={"mode": "process"})):
        await until(lambda: stage.committed() == 64)
    assert [letter.key() for letter in stage.dead_letters()] == [b"30"]


@pytest.mark.parametrize("batch_size", [None, 20])
async def test_large_messages_in_one_batch_stopped_the_process_engine(stage, batch_size):
    stage.create()
    stage.produce([{"value": b"x" * 300_000, "key": b"%d" % n} for n in range(20)])
    worker = workers.fine if batch_size is None else workers.batch_is_fine
    async with running(stage.consumer(worker, execution={"mode": "process", "batch_size": batch_size})):
        await until(lambda: stage.committed() == 20)
    assert stage.dead_letters() == []


async def test_the_rest_of_a_batch_was_never_handled_after_a_timeout(stage, tmp_path):
    stage.create()
    own = [("book", str(tmp_path / "book").encode())]
    stage.produce([{"value": b"hangs" if n == 2 else b"%d" % n, "key": b"%d" % n, "headers": own} for n in range(6)])
    execution = {"mode": "process", "batch_size": 6, "task_timeout_ms": 2000, "max_retries": 1}
    async with running(stage.consumer(workers.batch_meets_its_fate, execution=execution)):
        await until(lambda: stage.committed() == 6)
    assert [letter.key() for letter in stage.dead_letters()] == [b"2"]
    assert set((tmp_path / "book").read_text().split()) == {"0", "1", "3", "4", "5"}


async def test_commits_stopped_for_good_at_a_deleted_record(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(10)])
    stage.admin.delete_records([TopicPartition(stage.topic, 0, 4)])[TopicPartition(stage.topic, 0)].result(LIMIT)
    seen = []

    async def worker(record):
        seen.append(record.offset)

    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed() == 10)
    assert sorted(seen) == [4, 5, 6, 7, 8, 9]


async def test_commits_stopped_for_good_at_a_compacted_record(stage):
    soon = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.01", "min_compaction_lag_ms": "0"}
    stage.create(cleanup_policy="compact", max_compaction_lag_ms="100", **soon)
    stage.produce([{"value": b"%d" % n, "key": b"k%d" % (n % 3 if n < 90 else n)} for n in range(100)])

    def has_holes():
        stage.produce([{"value": b"last", "key": b"last"}])  # the segment that is written to is never compacted
        return len(stage.read()) < 30

    await until(has_holes)
    seen = []

    async def worker(record):
        seen.append(record.offset)

    async with running(stage.consumer(worker)):
        end = (await asyncio.to_thread(stage.read))[-1].offset() + 1
        await until(lambda: stage.committed() == end)
    assert len(seen) < 40


async def test_a_group_that_started_at_the_end_of_the_log_never_committed(stage):
    stage.create()
    stage.produce([{"value": b"old"}] * 5)
    seen = []

    async def worker(record):
        seen.append(record.value)

    consumer = stage.consumer(worker, auto_offset_reset="latest")
    async with running(consumer):
        await until(lambda: stage.committed() == 5)  # the place where it stands is kept from the start
        stage.produce([{"value": b"new"}] * 3)
        await until(lambda: stage.committed() == 8)
    assert seen == [b"new"] * 3


async def test_every_assignment_had_the_epoch_one(stage):
    stage.create(partitions=2)
    epochs: dict[int, list[int]] = {0: [], 1: []}

    async def worker(record):
        epochs[record.partition].append(record.epoch)

    async def other(record):
        pass

    consumer = stage.consumer(worker, settings=BRISK)
    async with running(consumer):
        stage.produce([{"value": b"x", "partition": n} for n in (0, 1)])
        await until(lambda: all(epochs.values()))
        second = stage.consumer(other, settings=BRISK)
        async with running(second):
            await until(lambda: second.assigned == 1)
            [moved] = [each.assignment.partition for each in second._poller._partitions.all]
        await until(lambda: consumer.assigned == 2)
        stage.produce([{"value": b"x", "partition": n} for n in (0, 1)])
        await until(lambda: all(len(each) == 2 for each in epochs.values()))
    assert epochs[moved][1] > epochs[moved][0]
    assert epochs[1 - moved][1] == epochs[1 - moved][0]  # it never went


async def test_done_messages_ran_again_after_every_restart(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(100)])
    runs: list[int] = []

    async def worker(record):
        runs.append(record.offset)
        if record.offset == 10:
            await asyncio.Event().wait()

    for round_ in (1, 2):
        async with running(stage.consumer(worker, execution={"shutdown_drain_timeout_ms": 50})):
            await until(lambda round_=round_: runs.count(10) == round_ and len(runs) >= 100)
            await until(lambda: stage.commit_of()[1] != "")
    assert len(runs) == 101


async def test_one_failing_message_held_back_all_others_while_it_was_retried(stage):
    stage.create()
    stage.produce([{"value": b"bad" if n == 0 else b"x", "key": b"%d" % n} for n in range(200)])
    done = []

    async def worker(record):
        if record.value == b"bad":
            raise RuntimeError("later")
        done.append(record.offset)

    consumer = stage.consumer(worker, execution={"retry_backoff_ms": 600_000, "max_retry_backoff_ms": 600_000,
                                                 "max_in_flight": 1, "shutdown_drain_timeout_ms": 120_000})  # fmt: skip
    async with running(consumer):
        began = time.monotonic()
        await until(lambda: len(done) == 199)
        assert time.monotonic() - began < 150
        ended = time.monotonic()
    assert time.monotonic() - ended < 60  # a retry that is ten minutes away does not hold up the shutdown
    assert stage.committed() == 0


async def test_dead_letters_of_large_messages_arrived_without_payload_and_key(stage):
    stage.create()
    stage.produce([{"value": b"x" * 100_000, "key": b"%d" % n} for n in range(50)])
    async with running(stage.consumer(rejects, message_cache_max_bytes=1_000_000)):
        await until(lambda: stage.committed() == 50)
    letters = stage.dead_letters()
    assert {len(letter.value()) for letter in letters} == {100_000}
    assert {letter.key() for letter in letters} == {b"%d" % n for n in range(50)}


async def test_a_timeout_error_of_the_users_own_killed_the_worker_process(stage):
    stage.create()
    stage.produce([{"value": b"x"}])
    async with running(stage.consumer(workers.raises_timeout, execution={"mode": "process"})):
        await until(lambda: stage.committed() == 1)
    [letter] = stage.dead_letters()
    assert dict(letter.headers())["x-error-reason"] == b"of my own"


async def test_messages_were_committed_though_the_worker_was_never_called_without_retries(stage):
    with pytest.raises(SettingsError, match="max_retries"):
        stage.consumer(workers.fine, execution={"max_retries": 0})
    stage.create()
    stage.produce([{"value": b"x"}])
    seen = []

    async def worker(record):
        seen.append(record.attempt)

    async with running(stage.consumer(worker, execution={"max_retries": 1})):
        await until(lambda: stage.committed() == 1)
    assert seen == [1]


async def test_a_key_ran_at_two_owners_at_once_during_a_rebalance(stage):
    stage.create(partitions=2)
    stage.produce([{"value": b"%d" % n, "key": b"%d" % (n % 4), "partition": n % 2} for n in range(40)])
    at_work: list[bytes] = []
    together, owners = [], set()

    def owner(name):
        async def worker(record):
            together.append(record.key in at_work)
            at_work.append(record.key)
            await asyncio.sleep(0.1)
            at_work.remove(record.key)
            owners.add(name)

        return stage.consumer(worker, settings=BRISK)

    async with running(owner("first")):
        await until(lambda: len(together) >= 4)
        second = owner("second")
        async with running(second):
            await until(lambda: second.assigned == 1)
            stage.produce([{"value": b"later", "key": b"%d" % (n % 4), "partition": n % 2} for n in range(40)])
            await until(lambda: sum(stage.committed(p) or 0 for p in (0, 1)) == 80)
    assert owners == {"first", "second"}
    assert not any(together)


async def test_everything_stood_still_while_dead_letters_could_not_be_published(stage):
    stage.create()
    stage.produce([{"value": b"bad", "key": b"bad%d" % n} for n in range(20)])
    done = []

    async def worker(record):
        if record.value == b"bad":
            raise Reject("never")
        done.append(record.offset)

    slow = {"retry_backoff_ms": 1000, "max_retries": 3}
    consumer = stage.consumer(worker, dlq_create_topics=False, dlq_flush_timeout_ms=1000, execution=slow)
    async with running(consumer):
        await until(lambda: consumer.counts.failed == 20)
        began = time.monotonic()
        stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(500)])
        await until(lambda: len(done) == 500)
        assert time.monotonic() - began < 30  # twenty publishes one after the other would have taken a minute
        stage.create(topic=stage.dlq)
        await until(lambda: stage.committed() == 520)
    assert len({dict(letter.headers())["x-redrive-id"] for letter in stage.dead_letters()}) == 20


async def test_a_poisonous_message_kept_a_whole_worker_process_asleep_between_its_tries(stage):
    stage.create()
    stage.produce([{"value": b"poison" if n == 0 else b"x", "key": b"%d" % n} for n in range(50)])
    far = {"mode": "process", "process_count": 1, "retry_backoff_ms": 600_000, "max_retry_backoff_ms": 600_000}
    consumer = stage.consumer(workers.fails_if_poison, execution=far)
    async with running(consumer):
        await until(lambda: consumer.counts.processed == 49)
    assert not stage.committed()


async def test_a_hopeless_error_was_tried_as_often_as_a_passing_one(stage):
    stage.create()
    stage.produce([{"value": b"hopeless"}, {"value": b"passing"}])
    tries = []

    async def worker(record):
        tries.append(record.value)
        raise KeyError("no") if record.value == b"hopeless" else ConnectionError("away")

    async with running(stage.consumer(worker, execution={"terminal_errors": (KeyError,)})):
        await until(lambda: stage.committed() == 2)
    assert (tries.count(b"hopeless"), tries.count(b"passing")) == (1, 3)


async def test_there_was_no_way_to_send_a_dead_letter_again(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"k"}])
    broken, handled = True, []

    async def worker(record):
        if broken:
            raise Reject("never")
        handled.append((record.key, record.value))

    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed() == 1)
        broken = False
        receipt = await asyncio.to_thread(replay, stage.kafka(), stage.dlq, Filter())
        assert receipt.replayed == 1
        await until(lambda: stage.committed() == 2)
    assert handled == [(b"k", b"x")]
