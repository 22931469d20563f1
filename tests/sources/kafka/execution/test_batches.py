"""The batch form of a worker: one call, many records; what failed is named or found out."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from msgspec import structs
from tests.sources.kafka import workers
from tests.sources.kafka.samples import partition, record
from tests.sources.kafka.stage import running, until

from redrive.sources.kafka import BatchExecutionEngine, BatchFailed, CompletionStatus, ExecutionConfig

SUCCESS, FAILURE = CompletionStatus.SUCCESS, CompletionStatus.FAILURE
QUICK = {"retry_backoff_ms": 1, "retry_jitter_ms": 0, "process_count": 1, "batch_size": 4, "max_retries": 2}


async def completions(worker, records, **config):
    engine = BatchExecutionEngine(worker, ExecutionConfig(**{**QUICK, **config}))
    events: asyncio.Queue = asyncio.Queue()
    engine.connect(events.put_nowait)
    try:
        engine.submit(records)
        async with asyncio.timeout(120):
            found = [await events.get() for _ in records]
    finally:
        await engine.close(0)
    assert events.empty()
    return {event.record.value: event for event in found}


def soups(count):
    return [record(n, value=b"%d" % n) for n in range(count)]


async def test_a_batch_is_one_call_and_one_completion_for_each_record():
    calls = []

    async def worker(records):
        calls.append([one.value for one in records])

    found = await completions(worker, soups(6))
    assert calls == [[b"0", b"1", b"2", b"3"], [b"4", b"5"]]
    assert {event.status for event in found.values()} == {SUCCESS}


async def test_named_records_are_retried_and_the_others_are_handled():
    tries = Counter()

    async def worker(records):
        tries.update(one.value for one in records)
        bad = {one: ValueError(f"no {one.value}") for one in records if one.value == b"2"}
        if bad:
            raise BatchFailed(bad)

    found = await completions(worker, soups(4))
    assert tries == {b"0": 1, b"1": 1, b"2": 2, b"3": 1}
    assert [value for value, event in found.items() if event.status is FAILURE] == [b"2"]
    assert (found[b"2"].attempt, found[b"2"].failure.error_type) == (2, "ValueError")


async def test_a_batch_that_names_nobody_runs_again_one_by_one():
    calls = []

    def worker(records):
        calls.append(len(records))
        if any(one.value == b"1" for one in records):
            raise RuntimeError("somebody")

    found = await completions(worker, soups(4))
    assert sorted(calls) == [1, 1, 1, 1, 1, 4]  # the batch, each alone, the bad one once more
    assert {value: event.attempt for value, event in found.items()} == {b"0": 1, b"1": 2, b"2": 1, b"3": 1}
    assert [value for value, event in found.items() if event.status is FAILURE] == [b"1"]


async def test_a_timeout_of_a_batch_is_found_out_one_by_one():
    async def worker(records):
        if any(one.value == b"1" for one in records):
            await asyncio.Event().wait()

    found = await completions(worker, soups(4), task_timeout_ms=50, max_retries=1)
    assert [value for value, event in found.items() if event.status is FAILURE] == [b"1"]
    assert found[b"1"].disposition == "timeout"


@pytest.mark.slow
async def test_a_process_that_dies_in_a_batch_costs_only_the_record_that_kills():
    records = [record(n, value=b"poison" if n == 2 else b"%d" % n) for n in range(4)]
    found = await completions(workers.batch_dies_if_poison, records, mode="process")
    assert [value for value, event in found.items() if event.status is FAILURE] == [b"poison"]
    assert found[b"poison"].disposition == "worker_died"


async def test_batches_on_a_topic_are_committed_and_their_failures_dead_lettered(stage):
    stage.create()
    stage.produce([{"value": b"%d" % n, "key": b"k%d" % n} for n in range(100)])
    sizes = []

    async def worker(records):
        sizes.append(len(records))
        if bad := [one for one in records if int(one.value) % 10 == 3]:
            raise BatchFailed(bad)

    async with running(stage.consumer(worker, execution={"batch_size": 20})):
        await until(lambda: stage.committed() == 100)
    assert max(sizes) > 1
    assert sorted(int(letter.value()) for letter in stage.dead_letters()) == list(range(3, 100, 10))


@pytest.mark.parametrize("names_one_of_its_own", [False, True])
async def test_a_batch_that_names_records_that_are_not_its_own_hands_nothing_over_as_handled(names_one_of_its_own):
    async def worker(records):
        copies = [structs.replace(one) for one in records if one.value == b"1"]
        if copies:
            raise BatchFailed([*copies, records[0]] if names_one_of_its_own else copies)

    found = await completions(worker, soups(4))
    assert [value for value, event in found.items() if event.status is FAILURE] == [b"1"]


async def test_a_batch_that_fails_after_its_partition_was_taken_away_runs_no_more():
    owner, gate, calls, events = partition(), asyncio.Event(), [], []

    async def worker(records):
        calls.append(len(records))
        await gate.wait()
        raise RuntimeError("somebody")

    engine = BatchExecutionEngine(worker, ExecutionConfig(**QUICK))
    ended = asyncio.Event()
    engine.connect(lambda event: events.append(event) or (ended.set() if len(events) == 4 else None))
    engine.submit([record(n, key=b"%d" % n, of=owner) for n in range(4)])
    assert engine.revoke(owner) == 0  # all of them have begun
    gate.set()
    await asyncio.wait_for(ended.wait(), 60)
    assert [(event.status, event.attempt) for event in events] == [(CompletionStatus.RELEASED, 0)] * 4
    assert calls == [4]
    await engine.close(0)


async def test_records_that_were_to_run_singly_are_forgotten_with_their_partition():
    engine = BatchExecutionEngine(print, ExecutionConfig(**QUICK))
    records = soups(4)
    engine._singly.update(records)
    engine._ready.extend(records)
    assert engine.revoke(records[0].assignment) == 1  # each of these has a partition of its own
    assert engine._singly == set(records[1:])
    await engine.close(0)
