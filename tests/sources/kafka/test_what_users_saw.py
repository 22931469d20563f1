"""
What users of an earlier parallel consumer saw, and must not see here.

Each test is named after what they saw. Those that need no broker are beside what they test:
the holes, the late start and `max_retries=0` in test_offsets.py and test_config.py, the worker
processes in test_engines.py.
"""

from __future__ import annotations

import asyncio
import time

from tests.sources.kafka import workers
from tests.sources.kafka.stage import running, until

from redrive import Reject


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


async def test_large_messages_in_one_batch_stopped_the_process_engine(stage):
    stage.create()
    stage.produce([{"value": b"x" * 300_000, "key": b"%d" % n} for n in range(20)])
    async with running(stage.consumer(workers.fine, execution={"mode": "process"})):
        await until(lambda: stage.committed() == 20)


async def test_commits_stopped_for_good_at_a_deleted_record(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(10)])
    from confluent_kafka import TopicPartition  # noqa: PLC0415

    stage.admin.delete_records([TopicPartition(stage.topic, 0, 4)])[TopicPartition(stage.topic, 0)].result(30)
    seen = []

    async def worker(record):
        seen.append(record.offset)

    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed() == 10)
    assert sorted(seen) == [4, 5, 6, 7, 8, 9]


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
    stage.create()
    epochs = []

    async def worker(record):
        epochs.append(record.epoch)

    consumer = stage.consumer(worker)
    async with running(consumer):
        stage.produce([{"value": b"x"}])
        await until(lambda: stage.committed() == 1)
        async with running(stage.consumer(worker)):
            await until(lambda: consumer.assigned == 0 or len(epochs) == 1)
        await until(lambda: consumer.assigned == 1)
        stage.produce([{"value": b"x"}])
        await until(lambda: stage.committed() == 2)
    assert len(epochs) == 2


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
                                                 "max_in_flight": 1, "shutdown_drain_timeout_ms": 5000})  # fmt: skip
    async with running(consumer):
        began = time.monotonic()
        await until(lambda: len(done) == 199)
        assert time.monotonic() - began < 20
        ended = time.monotonic()
    assert time.monotonic() - ended < 4  # a retry that is ten minutes away does not hold up the shutdown
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
    assert dict(letter.headers())["x-error-reason"] == b"TimeoutError: of my own"
