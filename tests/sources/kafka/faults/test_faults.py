"""A fault of the consumer itself ends in an error that `run` raises and in red health, never in silence."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.kafka.stage import LIMIT, until

PLACES = {  # where a fault may be: on the event loop, in a task, in a timer, on the control thread
    "scheduling": "redrive.sources.kafka.execution.ordering.Chains.enter",
    "deciding": "redrive.sources.kafka.execution.engine.decide",
    "waiting": "redrive.sources.kafka.records.delay_queue.DelayQueue.pop_due",
    "ordering": "redrive.sources.kafka.execution.ordering.Chains.leave",
    "completing": "redrive.sources.kafka.control.partition.Partition.complete",
    "burying": "redrive.sources.kafka.control.poller.BrokerPoller._bury",
    "committing": "redrive.sources.kafka.control.commits.Commits.step",
}


def broken(*_, **__):
    raise ZeroDivisionError("a fault of our own")


async def fails(record):
    await asyncio.sleep(0)
    if record.value == b"bad":
        raise RuntimeError("no")


def fails_in_a_thread(record):
    if record.value == b"bad":
        raise RuntimeError("no")


async def batch_fails(records):
    await asyncio.sleep(0)
    for record in records:
        await fails(record)


async def ends_with_the_fault(consumer):
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(consumer.run(), LIMIT)
    assert consumer.health.status == "red"
    assert "ZeroDivisionError" in consumer.health.reasons[0]


@pytest.mark.parametrize("place", PLACES)
async def test_a_fault_anywhere_stops_the_consumer_and_is_raised(stage, monkeypatch, place):
    stage.create()
    stage.produce([{"value": b"bad", "key": b"k"}, {"value": b"good", "key": b"l"}])
    monkeypatch.setattr(PLACES[place], broken)
    await ends_with_the_fault(stage.consumer(fails, execution={"shutdown_drain_timeout_ms": 50}))


@pytest.mark.parametrize(("worker", "size"), [(fails_in_a_thread, None), (batch_fails, 10)])
async def test_a_fault_stops_the_consumer_whatever_runs_its_worker(stage, monkeypatch, worker, size):
    stage.create()
    stage.produce([{"value": b"bad"}])
    monkeypatch.setattr(PLACES["deciding"], broken)
    await ends_with_the_fault(stage.consumer(worker, execution={"shutdown_drain_timeout_ms": 50, "batch_size": size}))


async def test_an_error_that_cannot_be_described_is_retried_and_dead_lettered_like_any_other(stage, monkeypatch):
    stage.create()
    stage.produce([{"value": b"bad"}])
    monkeypatch.setattr("redrive.engine.attempt.classify", broken)
    consumer = stage.consumer(fails)
    task = asyncio.create_task(consumer.run())
    await until(lambda: task.done() or stage.committed() == 1)
    consumer.stop()
    await task
    [letter] = stage.dead_letters()
    assert dict(letter.headers())["x-redrive-exception"] == b"RuntimeError"
