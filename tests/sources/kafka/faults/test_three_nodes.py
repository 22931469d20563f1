"""One node of three dies or stands still: nothing is lost, nothing is committed past what is unresolved."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from tests.sources.kafka.needed import needed
from tests.sources.kafka.stage import Stage, running, until

from redrive import Reject

pytest.importorskip("confluent_kafka")
from tests.servers.kafka_cluster import Cluster

pytestmark = pytest.mark.torture


@pytest.fixture(scope="module")
def cluster():
    with needed(), Cluster() as running_nodes:
        yield running_nodes


class Watch:
    """What was resolved, and whether commits ever ran ahead of it."""

    def __init__(self, stage, partitions):
        self.stage, self.partitions = stage, partitions
        self.handled: list[tuple[int, int]] = []

    def is_committed(self, count):
        """Look whether *count* are committed; all that are must have been handled or dead-lettered before."""
        committed = {number: self.stage.committed(number) or 0 for number in range(self.partitions)}
        at, handled = time.time() * 1000, set(self.handled)
        places = {(part, n) for part, end in committed.items() for n in range(end)} - handled
        assert not places - self.dead(at)
        return sum(committed.values()) == count

    def dead(self, until_ms=float("inf")):
        """Return the places of the records whose dead letters were sent by then."""
        letters = [each for each in self.stage.dead_letters() if each.timestamp()[1] <= until_ms]
        headers = [dict(letter.headers()) for letter in letters]
        return {(int(each["partition"]), int(each["offset"])) for each in headers}


@contextlib.asynccontextmanager
async def without_leader(cluster, topic, trouble, then=lambda: None):
    """Take the leader of *topic* away and call *then*; go on once there is another, and bring it back at the end."""
    await until(cluster.is_whole)
    await until(lambda: cluster.leader(topic) is not None)
    node = cluster.leader(topic)
    getattr(node, trouble)()
    try:
        then()
        await until(lambda: cluster.leader(topic) not in {None, node})
        yield
    finally:
        (node.thaw if trouble == "freeze" else node.launch)()  # by this thread: a node dies with the one it is of
        await asyncio.to_thread(node.wait)


async def test_a_leader_that_goes_away_during_consumption_loses_nothing(cluster):
    stage = Stage(cluster.bootstrap, "consumed", replicas=3)
    stage.create(partitions=3)
    stage.create(topic=stage.dlq, partitions=3)
    stage.produce([{"value": b"%d" % n, "key": b"%d" % (n % 30)} for n in range(900)])
    watch = Watch(stage, 3)

    async def worker(record):
        if int(record.value) % 10 == 3:
            raise Reject("bad")
        await asyncio.sleep(0.02)
        watch.handled.append((record.partition, record.offset))

    consumer = stage.consumer(worker, poll_batch_size=20, queue_max_messages=100)
    async with running(consumer) as task:
        await until(lambda: len(watch.handled) > 100)
        async with without_leader(cluster, stage.topic, "kill"):
            await until(lambda: task.done() or watch.is_committed(900))  # by the two that are left
        assert not task.done()
    everything = {(message.partition(), message.offset()) for message in stage.read()}
    assert set(watch.handled) | watch.dead() == everything
    stage.close()


@pytest.mark.parametrize("trouble", ["kill", "freeze"])
async def test_a_leader_that_goes_away_while_dead_letters_are_published_loses_none(cluster, trouble):
    stage = Stage(cluster.bootstrap, f"published-{trouble}", replicas=3)
    stage.create()
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"bad", "key": b"%d" % n} for n in range(400)])
    watch, gone, failed = Watch(stage, 1), asyncio.Event(), []

    async def worker(record):
        if len(failed) >= 200:  # the other half fails when the leader is away
            await gone.wait()
        failed.append(record.offset)
        raise Reject("bad")

    consumer = stage.consumer(worker, dlq_flush_timeout_ms=1000, dlq_flood_limit=0, execution={"max_in_flight": 10})
    async with running(consumer) as task:
        await until(lambda: len(failed) >= 200)
        async with without_leader(cluster, stage.dlq, trouble, then=gone.set):
            await until(lambda: task.done() or watch.is_committed(400))
        assert not task.done()
    ids = [dict(letter.headers())["x-redrive-id"] for letter in stage.dead_letters()]
    assert len(set(ids)) == 400
    print(f"of 400 dead letters {len(ids) - 400} were written twice")
    stage.close()
