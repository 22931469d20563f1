"""The consumer on a real broker: handled, retried, dead-lettered, committed."""

from __future__ import annotations

import asyncio
import threading

import pytest
from confluent_kafka import Producer
from tests.sources.kafka.stage import LIMIT, running, until

from redrive import Reject

ORDERINGS = pytest.mark.parametrize("ordering", ["key_hash", "partition", "unordered"])


def numbered(count, keys=5):
    return [{"value": b"%d" % n, "key": b"k%d" % (n % keys)} for n in range(count)]


@ORDERINGS
async def test_every_record_is_handled_and_committed(stage, ordering):
    stage.create(partitions=2)
    stage.produce(numbered(300))
    seen = []

    async def worker(record):
        seen.append(int(record.value))

    async with running(stage.consumer(worker, ordering=ordering)):
        await until(lambda: sum(stage.committed(p) or 0 for p in (0, 1)) == 300)
    assert sorted(seen) == list(range(300))


async def test_on_final_failure_the_dead_letter_has_the_key_value_and_headers_and_then_it_is_committed(stage):
    stage.create(partitions=3)
    own = [("trace", b"1"), ("trace", b"2"), ("none", None)]
    stage.produce([{"value": b"soup", "key": b"k", "partition": 2, "headers": own, "timestamp": 1_000_000}])

    async def worker(record):
        raise RuntimeError(f"no {record.value.decode()} at attempt {record.attempt}")

    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed(2) == 1)
    [letter] = stage.dead_letters()
    assert (letter.key(), letter.value(), letter.partition()) == (b"k", b"soup", 2)
    headers = letter.headers()
    assert headers[:3] == own
    assert headers[3:9] == [
        ("x-error-reason", b"no soup at attempt 3"),
        ("x-retry-attempt", b"3"),
        ("source-topic", stage.topic.encode()),
        ("partition", b"2"),
        ("offset", b"0"),
        ("epoch", dict(headers)["epoch"]),
    ]
    assert dict(headers)["x-redrive-id"] == f"{stage.topic}/2/0@{stage.group}".encode()
    assert dict(headers)["x-redrive-timestamp"] == b"1000000"
    assert letter.timestamp()[1] > 1_000_000_000_000  # its own is now, or retention would delete it


async def test_the_dead_letter_topic_is_made_with_the_sources_partitions_and_is_never_compacted(stage):
    stage.create(partitions=3)
    async with running(stage.consumer(lambda record: None)):
        await until(lambda: stage.dlq in stage.topics())
    assert len(stage.topics()[stage.dlq].partitions) == 3
    assert stage.config_of(stage.dlq)["cleanup.policy"] == "delete"


async def test_without_a_dead_letter_topic_a_failure_is_logged_and_committed(stage, caplog):
    stage.create()
    stage.produce(numbered(3))

    async def worker(record):
        raise Reject("never")

    async with running(stage.consumer(worker, dlq_enabled=False)):
        await until(lambda: stage.committed() == 3)
    assert stage.dlq not in stage.topics()
    assert "after attempt 1" in caplog.text
    assert "Reject: never" in caplog.text


async def test_null_and_empty_keys_and_values_stay_distinct_in_dead_letters(stage):
    stage.create()
    shapes = [(key, value) for key in (None, b"", b"k") for value in (None, b"", b"v")]
    stage.produce([{"key": key, "value": value} for key, value in shapes])

    async def worker(record):
        raise Reject("never")

    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed() == len(shapes))
    assert sorted(((m.key(), m.value()) for m in stage.dead_letters()), key=repr) == sorted(shapes, key=repr)


@pytest.mark.parametrize("ordering", ["key_hash", "partition"])
async def test_order_holds_while_records_are_retried(stage, ordering):
    stage.create(partitions=2)
    stage.produce(numbered(200))
    finished: dict[object, list[int]] = {}

    async def worker(record):
        await asyncio.sleep(0)
        if record.offset % 5 == 0 and record.attempt < 2:
            raise RuntimeError("later")
        lane = (record.partition, record.key) if ordering == "key_hash" else record.partition
        finished.setdefault(lane, []).append(record.offset)

    async with running(stage.consumer(worker, ordering=ordering)):
        await until(lambda: sum(stage.committed(p) or 0 for p in (0, 1)) == 200)
    assert all(offsets == sorted(offsets) for offsets in finished.values())
    assert sum(map(len, finished.values())) == 200


async def test_sync_workers_and_worker_processes_consume_too(stage):
    from tests.sources.kafka import workers  # noqa: PLC0415 - children import it by this name

    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(20)] + [{"value": b"poison", "key": b"p"}])
    async with running(stage.consumer(workers.dies_if_poison, execution={"mode": "process"})):
        await until(lambda: stage.committed() == 21)
    [letter] = stage.dead_letters()
    assert dict(letter.headers())["x-redrive-disposition"] == b"worker_died"


async def test_a_topic_that_is_not_there_is_told_until_somebody_makes_it(stage):
    async def worker(record):
        pass

    consumer = stage.consumer(worker, consumer_settings={"topic.metadata.refresh.interval.ms": 200})
    async with running(consumer):
        await until(lambda: any("no such topic to consume" in why for why in consumer.health.reasons))
        assert consumer.health.status == "degraded"
        stage.create()
        stage.produce([{"value": b"v"}])
        await until(lambda: stage.committed() == 1)
        await until(lambda: consumer.health.status == "green")


async def test_workers_that_all_hang_turn_the_consumer_red_and_one_that_comes_back_heals_it(stage, caplog):
    stage.create()
    stage.produce([{"value": b"%d" % n} for n in range(8)])
    gate = threading.Event()

    def worker(record):
        gate.wait(LIMIT)

    slow = {"task_timeout_ms": 50, "max_retries": 1000, "worker_pool_size": 8}
    consumer = stage.consumer(worker, execution=slow, ordering="unordered")
    async with running(consumer):
        try:
            await until(lambda: consumer.health.status == "red")
            assert "worker threads are stuck past their timeout" in consumer.health.reasons[0]
            await until(lambda: "worker threads are stuck past their timeout" in caplog.text)
        finally:
            gate.set()
        await until(lambda: stage.committed() == 8)
        await until(lambda: consumer.health.status == "green")


async def test_several_topics_and_a_pattern_are_consumed(stage):
    stage.create(topic=f"{stage.topic}-a")
    stage.create(topic=f"{stage.topic}-b")
    for letter in "ab":
        stage.produce([{"value": letter.encode(), "key": b"same"}], topic=f"{stage.topic}-{letter}")
    seen = []

    async def worker(record):
        seen.append(record.topic[-1])

    settings = {"topic.metadata.refresh.interval.ms": 500}
    async with running(stage.consumer(worker, topics=[f"^{stage.topic}-[ab]$"], settings=settings)):
        await until(lambda: sorted(seen) == ["a", "b"])


async def test_restart_with_one_stuck_record_runs_none_of_the_done_again(stage):
    stage.create()
    stage.produce(numbered(2000, keys=100))
    seen: list[int] = []
    gate = asyncio.Event()

    async def worker(record):
        if record.offset == 0:
            await gate.wait()
        seen.append(record.offset)

    consumer = stage.consumer(worker, execution={"shutdown_drain_timeout_ms": 100})
    async with running(consumer):
        await until(lambda: len(seen) == 2000 - 20)  # the stuck key holds 20
        await until(lambda: stage.commit_of()[1] != "")
    before = len(seen)
    assert stage.committed() == 0
    gate.set()
    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed() == 2000)
    assert len(seen) == before + 20
    assert sorted(seen) == list(range(2000))


async def make_transactional(stage) -> list[int]:
    """Fill a topic by three transactions, of which the second is aborted; return the offsets that can be read."""
    stage.create()
    producer = Producer({"bootstrap.servers": stage.bootstrap, "transactional.id": stage.topic})
    producer.init_transactions(30)
    for commits in (True, False, True):
        producer.begin_transaction()
        producer.produce(stage.topic, b"x")
        producer.flush(30)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    return [0, 4]  # what ends a transaction has an offset, too


async def make_compacted(stage) -> list[int]:
    """Fill a topic and wait until the broker has removed records of it; return the offsets that are left."""
    soon = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.01", "min_compaction_lag_ms": "0"}
    stage.create(cleanup_policy="compact", max_compaction_lag_ms="100", **soon)
    stage.produce([{"value": b"%d" % n, "key": b"k%d" % (n % 3)} for n in range(60)])

    def has_holes():
        stage.produce([{"value": b"last", "key": b"last"}])  # the segment that is written to is never compacted
        return len(stage.read()) < 30

    await until(has_holes)
    return [message.offset() for message in await asyncio.to_thread(stage.read)]


@pytest.mark.parametrize("make", [make_transactional, make_compacted])
async def test_lag_reaches_zero_on_a_compacted_or_transactional_topic(stage, make):
    there = await make(stage)
    seen = []

    async def worker(record):
        seen.append(record.offset)

    consumer = stage.consumer(worker)
    async with running(consumer):
        await until(lambda: [each.lag for each in consumer.partitions] == [0])
        await until(lambda: stage.committed() == stage.end())
    assert 0 < len(seen) < stage.end()
    assert set(seen) <= set(there)  # compaction may go on meanwhile
    if make is make_transactional:
        assert seen == there


async def test_foreign_metadata_beside_the_committed_offset_does_no_harm(stage):
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

    stage.create()
    stage.produce(numbered(5))
    other = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": stage.group})
    other.commit(offsets=[TopicPartition(stage.topic, 0, 2, "Rhostile 紙")], asynchronous=False)
    other.close()
    seen = []

    async def worker(record):
        seen.append(record.offset)

    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed() == 5)
    assert sorted(seen) == [2, 3, 4]


async def test_a_slow_worker_bounds_what_is_held_and_everything_is_handled(stage):
    stage.create(partitions=2)
    stage.produce(numbered(3000))
    held, seen = [], []
    consumer = stage.consumer(lambda record: None, queue_max_messages=100, poll_batch_size=50)

    async def worker(record):
        held.append(consumer._poller._buffered)
        await asyncio.sleep(0.001)
        seen.append(record.offset)

    consumer.worker = worker
    async with running(consumer):
        await until(lambda: sum(stage.committed(p) or 0 for p in (0, 1)) == 3000)
    assert max(held) <= 100 + 3 * 50  # a batch for each partition, and one that was under way
    assert len(seen) == 3000
