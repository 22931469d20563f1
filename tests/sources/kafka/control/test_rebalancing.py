"""Partitions come and go: nothing is lost, nothing runs twice at the same time, late results change nothing."""

from __future__ import annotations

import asyncio

import pytest
from tests.sources.kafka.stage import running, until

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def total(stage, partitions):
    return sum(stage.committed(p) or 0 for p in range(partitions))


@PROTOCOLS
async def test_members_that_join_and_leave_lose_nothing_and_share_no_key_at_the_same_time(stage, protocol):
    stage.create(partitions=4)
    stage.produce([{"value": b"%d" % n, "key": b"%d" % (n % 20)} for n in range(4000)])
    at_work: set[bytes] = set()
    seen: list[int] = []
    collisions = []

    async def worker(record):
        if record.key in at_work:
            collisions.append(record.key)
        at_work.add(record.key)
        await asyncio.sleep(0.001)
        at_work.discard(record.key)
        seen.append(int(record.value))

    def member():
        return stage.consumer(worker, group_protocol=protocol, queue_max_messages=200, poll_batch_size=50)

    async with running(member()) as first:
        await until(lambda: len(seen) > 300)
        for _ in range(2):
            second = member()
            async with running(second):
                await until(lambda second=second: second.assigned > 0)
                enough = len(seen) + 300
                await until(lambda enough=enough: len(seen) > min(enough, 3900))
        await until(lambda: total(stage, 4) == 4000)
        assert not first.done()
    assert set(seen) == set(range(4000))
    assert not collisions


@PROTOCOLS
async def test_a_revoked_partition_commits_what_it_drained(stage, protocol):
    stage.create(partitions=2)
    stage.produce([{"value": b"x", "key": b"%d" % n, "partition": n % 2} for n in range(100)])
    gate, began, finished = asyncio.Event(), [], []

    async def worker(record):
        began.append((record.partition, record.offset))
        await gate.wait()
        finished.append((record.partition, record.offset))

    first = stage.consumer(worker, group_protocol=protocol)
    async with running(first):
        await until(lambda: len(began) == 100)
        second = stage.consumer(worker, group_protocol=protocol)
        async with running(second):
            asyncio.get_running_loop().call_later(0.5, gate.set)  # in the middle of the drain
            await until(lambda: second.assigned == 1)
            await until(lambda: total(stage, 2) == 100)
    assert len(finished) == len(set(finished)) == 100


async def test_a_result_that_comes_after_its_partition_has_gone_changes_nothing(stage):
    stage.create(partitions=2)
    stage.produce([{"value": b"x", "key": b"%d" % n, "partition": n % 2} for n in range(10)])
    gate, runs = asyncio.Event(), []

    async def slow(record):
        runs.append((record.partition, record.offset))
        await gate.wait()

    async def quick(record):
        runs.append((record.partition, record.offset))

    first = stage.consumer(slow, execution={"max_revoke_grace_ms": 100})
    async with running(first):
        await until(lambda: len(runs) == 10)
        second = stage.consumer(quick)
        async with running(second):
            await until(lambda: second.assigned == 1 and len(runs) == 15)
            gate.set()
            await until(lambda: total(stage, 2) == 10)
            await until(lambda: first.counts.late == 5)


async def test_partitions_that_are_lost_commit_nothing(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(10)])
    more, rest = asyncio.Event(), asyncio.Event()

    async def worker(record):
        if record.offset >= 5:
            await (more if record.offset < 8 else rest).wait()

    consumer = stage.consumer(worker, commit_interval_ms=60_000)
    async with running(consumer):
        await until(lambda: consumer.counts.processed == 5 and stage.committed() is not None)  # the first is at once
        more.set()
        await until(lambda: consumer.counts.processed == 8)  # done, and not committed
        poller = consumer._poller
        places = [partition.assignment for partition in poller._partitions.all]
        poller._lost(None, [type("Place", (), {"topic": a.topic, "partition": a.partition}) for a in places])
        rest.set()
        await until(lambda: poller.counts.late == 2)
    assert stage.committed() <= 5


async def test_a_static_member_that_restarts_keeps_its_partitions(stage):
    stage.create(partitions=2)
    seen = []

    async def worker(record):
        seen.append((record.value, record.epoch))

    async def other(record):
        pass

    def member(name, work):
        brisk = {"heartbeat.interval.ms": 100}
        return stage.consumer(work, group_instance_id=name, settings=brisk)

    async with running(member("one", worker)) as task:
        for round_ in (1, 2, 3):
            second = member("two", other)
            async with running(second):
                await until(lambda second=second: second.assigned == 1)
                stage.produce([{"value": b"%d" % round_, "partition": n % 2} for n in range(10)])
                await until(lambda round_=round_: total(stage, 2) == 10 * round_)
        assert not task.done()
    assert len(seen) == 15
    assert len({epoch for _, epoch in seen}) == 1  # what was its own never went, and it got nothing of the other's


async def test_partitions_that_are_added_while_running_are_consumed(stage):
    from confluent_kafka.admin import NewPartitions  # noqa: PLC0415

    stage.create()
    seen = []

    async def worker(record):
        seen.append(record.partition)

    async with running(stage.consumer(worker, settings={"topic.metadata.refresh.interval.ms": 300})) as task:
        stage.produce([{"value": b"x"}])
        await until(lambda: seen == [0])
        stage.admin.create_partitions([NewPartitions(stage.topic, 2)])[stage.topic].result(30)
        await until(lambda: len(stage.topics()[stage.topic].partitions) == 2)
        stage.produce([{"value": b"x", "partition": 1}])
        await until(lambda: seen == [0, 1])
        assert not task.done()


async def test_a_partition_that_was_paused_when_it_was_taken_away_goes_on_when_it_comes_back(stage):
    stage.create(partitions=2)
    stage.produce([{"value": b"x", "key": b"%d" % n, "partition": n % 2} for n in range(200)])
    gate = asyncio.Event()

    async def worker(record):
        await gate.wait()

    def member():
        brief = {"max_revoke_grace_ms": 100, "shutdown_drain_timeout_ms": 100}
        return stage.consumer(worker, execution=brief, poll_batch_size=10, queue_max_messages=20)

    first, second = member(), member()
    async with running(first):
        await until(lambda: first.assigned == 2 and first.counts.paused == 2)
        async with running(second):
            await until(lambda: second.assigned == 1)
        await until(lambda: first.assigned == 2)
        gate.set()
        await until(lambda: total(stage, 2) == 200)
