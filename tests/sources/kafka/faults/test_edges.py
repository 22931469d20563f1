"""
Where consumers of Kafka go wrong, and the test that shows that this one does not.

| what happens | shown by |
|---|---|
| a revoke with a hundred in flight | test_rebalancing: a_revoked_partition_commits_what_it_drained, a_result_that_comes_after_… |
| partitions are lost | test_rebalancing: partitions_that_are_lost_commit_nothing; test_crashes: …stood_still_too_long… |
| a partition goes and comes back at once | here: a_partition_that_goes_and_comes_back_… |
| the broker refuses a commit | test_commits: all of it |
| a blocked control thread misses its poll | here: a_control_thread_that_stood_still_… |
| a long backoff on one key | here: a_retry_that_is_far_away_…; test_what_users_saw: one_failing_message_held_back_… |
| a restart behind one stuck record | test_consuming: restart_with_one_stuck_record_…; test_done_map: …fifty_thousand_done… |
| a map that does not fit | test_done_map: a_map_that_does_not_fit_keeps_…; test_commits: a_broker_that_allows_less_… |
| a foreign, corrupt or hostile map | test_done_map: foreign…, torn…, no_text_whatsoever…; test_consuming: foreign_metadata_… |
| a compacted or transactional source | test_what_users_saw: …at_a_compacted_record; test_consuming: lag_reaches_zero_… |
| retention deletes while the consumer is away | here: what_retention_deleted_… |
| the topic is made anew | here: a_topic_that_was_made_anew_…; test_done_map: a_map_that_reaches_beyond_the_log_… |
| null and empty keys and values | test_consuming: null_and_empty_…; here: …come_home_as_they_were |
| duplicate, null and binary headers | test_headers: the_records_own_headers_…; here: …come_home_as_they_were |
| a record of exactly the largest size | test_dead_letters: a_record_of_exactly_the_largest_size_… |
| a dead-letter topic is missing, forbidden, away | test_dead_letters: all; test_forbidden: …may_not_be_written_to…, …is_hidden…; test_three_nodes |
| kill -9 between dead letter and commit | test_crashes: a_consumer_killed_at_any_step_…, …killed_between_a_dead_letter_and_its_commit… |
| the same, exactly once | test_exactly_once: a_consumer_killed_at_any_step_sends_nothing_twice |
| a worker process dies, hangs or floods | test_misfortunes: all; test_engines: an_error_that_cannot_travel_… |
| a worker raises a BaseException | test_engines: base_exceptions_of_a_worker_… |
| a value that cannot be decoded | here: a_value_that_cannot_be_decoded_… |
| one key in two topics, keys equal by their bytes | test_ordering: the_same_key_in_two_topics_…, keys_are_equal_by_their_bytes |
| everything fails | test_flood_gate: when_everything_fails_… |
| partitions are added | test_rebalancing: partitions_that_are_added_while_running_… |
| a static member restarts | test_rebalancing: a_static_member_that_restarts_… |
| the clock jumps | here: a_clock_that_jumps_… |
| two groups read one topic | here: two_groups_of_one_topic_… |
| a replay goes in circles | test_replay: what_comes_back_too_often_is_parked |
| no dead-letter topic is wanted | test_consuming: without_a_dead_letter_topic_… |
| kills at random for a long time | test_crashes: random_kills_…; tests/torture/kafka: test_kills |
"""  # noqa: E501 - a row is a line

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from tests.sources.kafka.samples import record as a_record
from tests.sources.kafka.stage import running, until

from redrive import Reject
from redrive.sources.kafka import AsyncExecutionEngine, ExecutionConfig
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.replay import replay

HERE = Path(__file__)
IMPATIENT = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 200, "max.poll.interval.ms": 1200}
FIRM = {"session.timeout.ms": 5000, "heartbeat.interval.ms": 500, "max.poll.interval.ms": 5000}  # outlasts a stall


def test_every_test_that_the_table_names_exists():
    for line in (__doc__ or "").splitlines()[5:]:
        for module, names in re.findall(r"(here|test_\w+): ([^;|]+)", line):
            [path] = [HERE] if module == "here" else HERE.parents[1].rglob(f"{module}.py")
            tests = re.findall(r"def (test_\w+)", path.read_text())
            for name in (each.strip() for each in names.split(",")):
                wanted = re.compile(".*".join(re.escape(part) for part in name.removesuffix(" of it").split("…")))
                assert name in {"all", "all of it"} or any(wanted.search(test) for test in tests), (module, name)


# ---------------------------------------------------------------------- membership


async def test_a_partition_that_goes_and_comes_back_at_once_skips_nothing_and_runs_nothing_twice_at_a_time(stage):
    stage.create(partitions=2)
    stage.produce([{"value": b"%d" % n, "key": b"%d" % (n % 10), "partition": n % 2} for n in range(600)])
    at_work: Counter = Counter()
    runs: Counter = Counter()
    most = []

    async def worker(record):
        place = (record.partition, record.offset)
        at_work[place] += 1
        most.append(at_work[place])
        await asyncio.sleep(0.01)
        at_work[place] -= 1
        runs[place] += 1

    brisk = {"heartbeat.interval.ms": 100}
    first = stage.consumer(worker, poll_batch_size=20, queue_max_messages=100, settings=brisk)
    async with running(first):
        await until(lambda: first.assigned == 2 and runs)
        for _ in range(2):
            second = stage.consumer(worker, settings=brisk)
            async with running(second):
                await until(lambda second=second: second.assigned == 1)
            await until(lambda: first.assigned == 2)
        await until(lambda: sum(stage.committed(p) or 0 for p in (0, 1)) == 600)
    assert len(runs) == 600
    assert max(most) == 1


async def test_a_control_thread_that_stood_still_too_long_loses_its_partitions_and_recovers(stage):
    stage.create()
    stage.produce([{"value": b"1"}])
    seen: list[tuple[bytes, int]] = []

    async def worker(record):
        seen.append((record.value, record.epoch))

    consumer = stage.consumer(worker, settings=IMPATIENT)
    async with running(consumer):
        await until(lambda: stage.committed() == 1)
        one_round = consumer._poller.round

        def stand_still():
            while stage.members():  # until the broker has thrown it out
                time.sleep(0.05)
            del consumer._poller.round
            one_round()

        consumer._poller.round = stand_still
        await until(lambda: "round" not in vars(consumer._poller))
        stage.produce([{"value": b"2"}])
        await until(lambda: stage.committed() == 2)
    assert {value for value, _ in seen} == {b"1", b"2"}
    assert seen[-1][1] > seen[0][1]  # it was thrown out, and came back with a new epoch


async def test_a_retry_that_is_far_away_keeps_the_consumer_in_its_group_and_other_keys_flow(stage):
    stage.create()
    stage.produce([{"value": b"bad", "key": b"bad"}])
    epochs = set()

    async def worker(record):
        if record.value == b"bad":
            raise RuntimeError("later")
        epochs.add(record.epoch)

    far = {"retry_backoff_ms": 600_000, "max_retry_backoff_ms": 600_000}
    consumer = stage.consumer(worker, settings=FIRM, execution=far)
    async with running(consumer):
        began, count = time.monotonic(), 0
        while time.monotonic() - began < 1.5 * FIRM["max.poll.interval.ms"] / 1000:
            stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(50)])
            count += 50
            await until(lambda count=count: consumer.counts.processed == count)
        assert consumer._poller._buffered <= 1
        assert not stage.committed()
    assert len(epochs) == 1


# ---------------------------------------------------------------------- the log


async def _with_one_stuck(stage, stuck):
    """Handle ten records but *stuck*, so that a map is committed with the watermark."""
    ran = []

    async def worker(record):
        ran.append(record.offset)
        if record.offset == stuck:
            await asyncio.Event().wait()

    async with running(stage.consumer(worker, execution={"shutdown_drain_timeout_ms": 50})):
        await until(lambda: len(ran) == 10 and stage.committed() == stuck)
    assert stage.commit_of()[1]


async def test_what_retention_deleted_while_the_consumer_was_away_holds_nothing_back(stage):
    stage.create()
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(10)])
    await _with_one_stuck(stage, 2)
    stage.produce([{"value": b"x", "key": b"%d" % n} for n in range(10)])
    gone = TopicPartition(stage.topic, 0, 13)
    stage.admin.delete_records([gone])[gone].result(30)
    seen = []

    async def worker(record):
        seen.append(record.offset)

    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed() == 20)
    assert sorted(seen) == list(range(13, 20))


async def test_a_topic_that_was_made_anew_runs_all_of_its_records(stage):
    stage.create()
    stage.produce([{"value": b"old", "key": b"%d" % n} for n in range(10)])
    await _with_one_stuck(stage, 1)
    stage.admin.delete_topics([stage.topic])[stage.topic].result(30)
    await until(lambda: stage.topic not in stage.topics())
    stage.create()
    stage.produce([{"value": b"new", "key": b"%d" % n} for n in range(6)])
    seen = []

    async def worker(record):
        seen.append((record.offset, record.value))

    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed() == 6)
    assert sorted(seen) == [(n, b"new") for n in range(6)]


async def test_two_groups_of_one_topic_each_handle_everything_and_name_themselves_in_dead_letters(stage):
    stage.create()
    stage.produce([{"value": b"bad" if n == 5 else b"x", "key": b"%d" % n} for n in range(20)])
    seen: Counter = Counter()

    async def worker(record):
        if record.value == b"bad":
            raise Reject("never")
        seen[record.offset] += 1

    other = f"{stage.group}-too"
    async with running(stage.consumer(worker)), running(stage.consumer(worker, group=other)):
        await until(lambda: sum(seen.values()) == 38 and len(stage.dead_letters()) == 2)
        await until(lambda: stage.committed() == 20)
    groups = {dict(letter.headers())["x-redrive-group"].decode() for letter in stage.dead_letters()}
    assert groups == {stage.group, other}
    assert set(seen.values()) == {2}


# ---------------------------------------------------------------------- records


async def test_keys_values_and_headers_of_every_shape_come_home_as_they_were(stage):
    stage.create()
    shapes = [(key, value) for key in (None, b"", b"\xff\x00") for value in (None, b"", b"\x00v\xfe")]
    own = [("a", b"1"), ("a", None), ("a", b"\xff\xfe"), ("ü", b"")]
    stage.produce([{"key": key, "value": value, "headers": own} for key, value in shapes])

    async def worker(record):
        raise Reject("never")

    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed() == len(shapes))
    assert all(letter.headers()[:4] == own for letter in stage.dead_letters())
    receipt = await asyncio.to_thread(replay, stage.kafka(), stage.dlq, Filter())
    assert receipt.replayed == len(shapes)
    home = stage.read()[len(shapes) :]
    assert sorted(((m.key(), m.value()) for m in home), key=repr) == sorted(shapes, key=repr)
    assert all(message.headers()[:4] == own for message in home)


async def test_a_value_that_cannot_be_decoded_is_dead_lettered_with_every_byte(stage):
    stage.create()
    value = b"\x00\x00\x00\x00\x2a" + b"\xff{not json"  # the five bytes name a schema
    stage.produce([{"value": value, "key": b"k"}])

    async def worker(record):
        json.loads(record.value[5:])

    async with running(stage.consumer(worker, execution={"terminal_errors": (ValueError,)})):
        await until(lambda: stage.committed() == 1)
    [letter] = stage.dead_letters()
    headers = dict(letter.headers())
    assert letter.value() == value
    assert (headers["x-retry-attempt"], headers["x-redrive-disposition"]) == (b"1", b"terminal")


# ---------------------------------------------------------------------- time


@pytest.mark.parametrize("jump", [86_400, -86_400])
async def test_a_clock_that_jumps_neither_hurries_nor_holds_up_a_retry(monkeypatch, jump):
    tries: list[bytes] = []
    jumped = asyncio.Event()
    real, real_ns = time.time, time.time_ns

    async def worker(record):
        tries.append(record.value)
        if record.value == b"soon" and record.attempt == 1:
            monkeypatch.setattr(time, "time", lambda: real() + jump)
            monkeypatch.setattr(time, "time_ns", lambda: real_ns() + jump * 1_000_000_000)
            jumped.set()
        if record.attempt == 1:
            raise RuntimeError("later")

    far = AsyncExecutionEngine(worker, ExecutionConfig(retry_backoff_ms=600_000, max_retry_backoff_ms=600_000))
    near = AsyncExecutionEngine(worker, ExecutionConfig(retry_backoff_ms=20, retry_jitter_ms=0))
    done: asyncio.Queue = asyncio.Queue()
    near.connect(done.put_nowait)
    far.submit([a_record(0, value=b"far")])
    near.submit([a_record(1, value=b"soon")])
    async with asyncio.timeout(60):
        await jumped.wait()
        assert (await done.get()).attempt == 2
    await near.close(0)
    await far.close(0)
    assert sorted(tries) == [b"far", b"soon", b"soon"]
