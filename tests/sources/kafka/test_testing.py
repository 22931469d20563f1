"""Users' tests of a Kafka worker: a few lines, no broker, no waiting."""

from __future__ import annotations

import asyncio

import pytest

from redrive import Reject
from redrive.sources.kafka import ExecutionConfig
from redrive.testing import drive_worker


async def ship(record):
    if record.value == b"never":
        raise Reject("no such order")
    if record.attempt < 3:
        raise ConnectionError("the warehouse is closed")


async def test_a_worker_is_tried_again_without_anybody_waiting():
    async with drive_worker(ship) as test:
        began = test.clock.monotonic()
        test.send(b"order", key=b"bob")
        await test.run_until_idle()
        [done] = test.completions
        assert (done.status, done.attempt, test.dead_letters) == ("success", 3, [])
        assert test.clock.monotonic() - began == pytest.approx(1 + 2 + 2 * 0.1)  # backoff, and half of the jitter


async def test_a_dead_letter_is_seen_as_it_would_be_published():
    async with drive_worker(ship, execution=ExecutionConfig(max_retries=2)) as test:
        test.send(b"never", key=b"bob", partition=3)
        test.send(b"order", topic="bills")
        await test.run_until_idle()
        first, second = test.dead_letters
        assert (first.topic, first.key, first.value, first.header("partition")) == ("orders.dlq", b"bob", b"never", "3")
        assert (first.header("x-error-reason"), first.header("x-redrive-disposition")) == ("no such order", "terminal")
        assert (second.topic, second.header("x-retry-attempt")) == ("bills.dlq", "2")
        failed_at, first_failed_at = (second.header(f"x-redrive-{name}") for name in ("failed-at", "first-failed-at"))
        assert int(failed_at) - int(first_failed_at) == 1100


async def test_the_order_of_a_key_is_kept():
    seen = []

    async def worker(record):
        seen.append(record.value)
        if record.value == b"1" and record.attempt == 1:
            raise ConnectionError("later")

    async with drive_worker(worker) as test:
        for value, key in ((b"1", b"k"), (b"2", b"k"), (b"3", b"other")):
            test.send(value, key=key)
        await test.run_until_idle()
    assert seen == [b"1", b"3", b"1", b"2"]


def in_a_thread(record):
    if record.attempt == 1:
        raise ConnectionError("later")


async def test_workers_in_threads_are_driven_too():
    async with drive_worker(in_a_thread) as test:
        test.send(b"x")
        await test.run_until_idle()
        assert test.completions[0].attempt == 2


async def test_a_worker_that_hangs_is_told_of():
    async def hangs(record):
        await asyncio.Event().wait()

    async with drive_worker(hangs) as test:
        test.send(b"x")
        with pytest.raises(AssertionError, match="1 records have not ended"):
            await test.run_until_idle(patience=0.05)
