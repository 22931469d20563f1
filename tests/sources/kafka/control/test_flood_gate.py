"""A dead dependency pauses the consumer instead of draining the topic into the dead-letter topic."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from tests.sources.kafka.stage import LIMIT, running, until

from redrive.sources.kafka.control.flood_gate import FloodGate


def test_the_gate_shuts_after_so_many_failures_in_a_row_and_opens_with_a_success():
    gate = FloodGate(3)
    assert [gate.holds("timeout") for _ in range(5)] == [False, False, False, True, True]
    gate.succeeded()
    assert not gate.is_shut
    assert not gate.holds("timeout")


def test_a_success_in_between_starts_the_count_anew():
    gate = FloodGate(2)
    for _ in range(10):
        assert not gate.holds("retries_exhausted")
        gate.succeeded()


def test_what_fails_by_its_own_word_does_not_count():
    gate = FloodGate(1)
    assert not any(gate.holds("terminal") for _ in range(10))


def test_a_limit_of_zero_never_shuts():
    gate = FloodGate(0)
    assert not any(gate.holds("timeout") for _ in range(10))


def test_a_gate_that_was_opened_a_little_shuts_with_the_next_failure():
    gate = FloodGate(3)
    assert [gate.holds("timeout") for _ in range(4)] == [False, False, False, True]
    gate.open_a_little()
    assert not gate.is_shut
    assert gate.holds("timeout")
    gate.open_a_little()
    gate.succeeded()
    assert not gate.holds("timeout")


async def test_unless_a_limit_is_set_every_record_that_fails_becomes_a_dead_letter(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(1_200)])

    async def worker(record):
        raise ConnectionError("the schema has changed")

    async with running(stage.consumer(worker, execution={"max_retries": 1})):
        await until(lambda: stage.committed() == 1_200)
    assert len(stage.dead_letters()) == 1_200


async def test_when_everything_fails_the_topic_is_not_drained_into_the_dead_letter_topic(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(500)])
    broken, done = True, set()

    async def worker(record):
        if broken:
            raise ConnectionError("the database is away")
        done.add(record.offset)

    consumer = stage.consumer(worker, dlq_flood_limit=10, dlq_flood_cooldown_ms=100)
    async with running(consumer):
        await until(lambda: consumer.health.status == "red")
        assert "fail in a row" in consumer.health.reasons[0]
        broken = False
        await until(lambda: stage.committed() == 500)
        await until(lambda: consumer.health.status == "green")
    letters = stage.dead_letters()
    assert len(letters) == 10
    assert len(done) == 490


async def test_a_consumer_that_stops_in_a_flood_leaves_its_records_to_the_next(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(50)])

    async def fails(record):
        raise ConnectionError("the database is away")

    async def works(record):
        pass

    consumer = stage.consumer(fails, dlq_flood_limit=10, dlq_flood_cooldown_ms=60_000)
    async with running(consumer):
        await until(lambda: consumer.health.status == "red")
    async with running(stage.consumer(works)):
        await until(lambda: stage.committed() == 50)
    assert len(stage.dead_letters()) == 10


async def test_records_of_one_key_that_were_held_run_in_order_after_one_was_tried_in_vain(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"k"} for _ in range(5)])
    tries, done = Counter(), []

    async def worker(record):
        tries[record.offset] += 1
        if tries[record.offset] == 1 or (record.offset, tries[1]) == (1, 2):  # the first one held is tried in vain
            raise ConnectionError("the database is away")
        done.append(record.offset)

    once = {"max_retries": 1}
    async with running(stage.consumer(worker, dlq_flood_limit=1, dlq_flood_cooldown_ms=50, execution=once)):
        await until(lambda: stage.committed() == 5)
    assert done == [1, 2, 3, 4]
    assert len(stage.dead_letters()) == 1


async def test_a_consumer_that_loses_what_it_held_in_a_rebalance_goes_on_with_the_partition_that_comes_back(stage):
    other = f"{stage.topic}-other"
    stage.create()
    stage.create(topic=other)
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(50)])
    broken = True

    async def worker(record):
        if broken:
            raise ConnectionError("the database is away")

    eager = {"consumer_settings": {"partition.assignment.strategy": "range"}}  # everything is taken, and given anew
    consumer = stage.consumer(worker, dlq_flood_limit=10, dlq_flood_cooldown_ms=3_600_000, **eager)
    async with running(consumer):
        await until(lambda: any("40 are held" in why for why in consumer.health.reasons))  # nothing runs any more
        broken = False
        async with running(stage.consumer(worker, topics=[other], **eager)):
            await until(lambda: stage.committed() == 50)
    assert len(stage.dead_letters()) == 10


async def test_nobody_waits_for_a_record_that_fails_in_a_flood_when_the_consumer_has_begun_to_leave(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(3)])
    late = asyncio.Event()

    async def worker(record):
        if record.offset == 2:
            late.set()
            while not record.assignment.leaving:  # noqa: ASYNC110 - nobody tells a worker
                await asyncio.sleep(0.005)
        raise ConnectionError("the database is away")

    consumer = stage.consumer(
        worker, dlq_flood_limit=1, dlq_flood_cooldown_ms=3_600_000,
        execution={"max_retries": 1, "shutdown_drain_timeout_ms": 120_000},
    )  # fmt: skip
    async with running(consumer):
        await until(lambda: consumer.health.status == "red")
        await asyncio.wait_for(late.wait(), LIMIT)
        told = time.monotonic()
    assert time.monotonic() - told < 100  # not all the time that it may take
