"""No offset is committed past a record that is neither handled nor confirmed in its dead-letter topic."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import closing

import pytest
from tests.servers.kafka import Broker
from tests.sources.kafka.stage import LIMIT, Stage, running, until

from redrive import Reject
from redrive.errors import SourceError
from redrive.sources.kafka.dead_letters import topics


async def rejects_bad(record):
    if record.value == b"bad":
        raise Reject("never")


async def test_a_missing_dead_letter_topic_commits_nothing_past_it_and_goes_on_once_it_is_there(stage):
    stage.create()
    stage.produce([{"value": value, "key": value + b"%d" % n} for n, value in enumerate([b"ok", b"bad", b"ok", b"ok"])])
    consumer = stage.consumer(
        rejects_bad, dlq_create_topics=False, dlq_flush_timeout_ms=300, execution={"max_retries": 2}
    )
    async with running(consumer):
        await until(lambda: consumer.health.status == "red")
        await until(lambda: stage.committed() == 1 and consumer.counts.processed == 3)
        [why] = [reason for reason in consumer.health.reasons if "takes no dead letters" in reason]
        assert stage.topic in why
        stage.create(topic=stage.dlq)
        await until(lambda: stage.committed() == 4)
        await until(lambda: consumer.health.status != "red")
    [letter] = stage.dead_letters()
    assert letter.value() == b"bad"


async def test_a_consumer_that_stops_with_an_unconfirmed_dead_letter_leaves_it_to_the_next(stage):
    stage.create()
    stage.produce([{"value": b"bad"}])
    first = stage.consumer(
        rejects_bad, dlq_create_topics=False, dlq_flush_timeout_ms=300, execution={"shutdown_drain_timeout_ms": 100}
    )
    async with running(first):
        await until(lambda: first.counts.failed == 1)
    assert not stage.committed()
    async with running(stage.consumer(rejects_bad)):
        await until(lambda: stage.committed() == 1)
    assert len(stage.dead_letters()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["freeze", "kill"])
async def test_a_broker_that_goes_away_during_publishing_loses_no_dead_letter(trouble):
    soon = {"broker_session_timeout_ms": 3000, "broker_heartbeat_interval_ms": 500}  # one that was killed may come back
    with Broker(**soon) as broker, closing(Stage(broker.bootstrap, trouble)) as stage:
        stage.create()
        stage.produce([{"value": b"bad", "key": b"%d" % n} for n in range(50)])
        gate, held = asyncio.Event(), []

        async def worker(record):
            held.append(record.offset)
            await gate.wait()
            raise Reject("never")

        consumer = stage.consumer(
            worker, dlq_flush_timeout_ms=500, execution={"max_retry_backoff_ms": 500}, session_timeout_ms=300_000
        )  # it stays a member, however long the broker takes to come back
        async with running(consumer) as task:
            await until(lambda: len(held) == 50)  # it has joined its group, and all dead letters are still to come
            getattr(broker, trouble)()
            gate.set()
            await until(lambda: consumer.counts.dlq_failures > 0)
            (broker.thaw if trouble == "freeze" else broker.launch)()
            await asyncio.to_thread(broker.wait)
            await until(lambda: task.done() or stage.committed() == 50)
            assert not task.done()
        ids = [dict(letter.headers())["x-redrive-id"] for letter in stage.dead_letters()]
        assert len(set(ids)) == 50


async def test_a_broker_that_is_away_when_a_topic_is_new_is_asked_again_for_its_dead_letter_topic(stage, monkeypatch):
    stage.create(partitions=3)
    stage.produce([{"value": b"bad", "partition": 2}])
    monkeypatch.setattr(topics, "_LIMIT", 0.0)  # nobody answers in no time
    consumer = stage.consumer(rejects_bad, topics=[f"^{stage.topic}$"])
    async with running(consumer):
        await until(lambda: any("has not answered yet" in why for why in consumer.health.reasons))
        monkeypatch.undo()
        await until(lambda: stage.committed(2) == 1)
        await until(lambda: not consumer.health.reasons)
    [letter] = stage.dead_letters()
    assert letter.partition() == 2


async def test_a_dead_letter_topic_that_vanishes_is_made_anew_and_its_partition_goes_on(stage):
    stage.create(partitions=2)
    consumer = stage.consumer(rejects_bad, dlq_flush_timeout_ms=300, execution={"max_retries": 1})
    async with running(consumer):
        await until(lambda: stage.dlq in stage.topics())
        stage.admin.delete_topics([stage.dlq])[stage.dlq].result(LIMIT)
        stage.produce([{"value": b"bad", "partition": 1}])
        await until(lambda: stage.committed(1) == 1)
        await until(lambda: consumer.health.status == "green")
    [letter] = stage.dead_letters()
    assert letter.partition() == 1
    assert len(stage.topics()[stage.dlq].partitions) == 2


async def test_a_dead_letter_topic_that_somebody_makes_later_is_no_longer_reported_as_missing(stage):
    stage.create()
    stage.produce([{"value": b"bad"}])
    consumer = stage.consumer(rejects_bad, dlq_create_topics=False, dlq_flush_timeout_ms=300)
    async with running(consumer):
        await until(lambda: any("no such topic" in why for why in consumer.health.reasons))
        stage.create(topic=stage.dlq)
        await until(lambda: stage.committed() == 1)
        await until(lambda: consumer.health.status == "green")


async def test_a_broker_that_is_away_when_a_topic_is_new_holds_up_nobody(stage, monkeypatch):
    asked = threading.Event()

    def never(self, sources):
        asked.wait(LIMIT)
        raise topics.BrokerAway("nobody answers")

    stage.create()
    stage.produce([{"value": b"bad"}, *({"value": b"good"} for _ in range(5))])
    monkeypatch.setattr(topics.DeadLetterTopics, "_prepare_all", never)
    consumer = stage.consumer(rejects_bad, topics=[f"^{stage.topic}$"])
    async with running(consumer):
        try:
            await until(lambda: consumer.counts.processed == 5)  # while somebody still waits for the broker
        finally:
            monkeypatch.undo()
            asked.set()
        await until(lambda: stage.committed() == 6)


@pytest.mark.parametrize("when", ["create_topics", "describe_configs"])
def test_an_answer_that_never_comes_is_a_broker_that_is_away(stage, monkeypatch, when):
    stage.create()
    if when == "describe_configs":
        stage.create(topic=stage.dlq)
    monkeypatch.setattr(topics, "_LIMIT", 10.0)
    monkeypatch.setattr(topics, "_LATE", -14.0)  # of the 15 s for an answer one is left
    made = topics.DeadLetterTopics(stage.kafka())
    monkeypatch.setattr(made._admin, when, lambda asked, **_: {each: Future() for each in [stage.dlq, *asked]})
    with pytest.raises(topics.BrokerAway):
        made.prepare([stage.topic])


async def test_a_compacted_dead_letter_topic_is_refused_at_the_start(stage):
    stage.create()
    stage.create(topic=stage.dlq, cleanup_policy="compact")
    with pytest.raises(SourceError, match="is compacted"):
        await stage.consumer(rejects_bad).run()


async def test_a_consumer_of_its_own_dead_letters_is_refused(stage):
    stage.create()
    stage.create(topic=stage.dlq)
    with pytest.raises(SourceError, match="would consume the dead letters that it writes"):
        await asyncio.wait_for(stage.consumer(rejects_bad, topics=[f"^{stage.topic}(.dlq)?$"]).run(), LIMIT)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_pattern_leaves_out_the_dead_letter_topics_that_it_would_match(stage, protocol):
    stage.create()
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"bad"}])
    consumer = stage.consumer(rejects_bad, topics=[f"^{stage.topic}.*"], group_protocol=protocol)
    async with running(consumer):
        await until(lambda: stage.committed() == 1)
        await until(lambda: {standing.topic for standing in consumer.partitions} == {stage.topic})
    assert len(stage.dead_letters()) == 1


async def test_a_record_of_exactly_the_largest_size_becomes_a_dead_letter_with_its_whole_value(stage):
    stage.create(max_message_bytes="20000")
    largest = b"x" * (20_000 - 100)
    stage.produce([{"value": largest, "headers": [("own", b"y" * 20)]}], **{"message.max.bytes": 20_000})

    async def worker(record):
        raise Reject("z" * 5000)

    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed() == 1)
    [letter] = stage.dead_letters()
    assert letter.value() == largest


async def test_a_dead_letter_too_large_for_its_topic_sheds_headers_before_it_halts(stage):
    stage.create()
    stage.create(topic=stage.dlq, max_message_bytes="1500")
    stage.produce([{"value": b"v" * 600, "headers": [("own", b"y" * 600)]}])

    async def worker(record):
        raise Reject("short")

    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed() == 1)
    [letter] = stage.dead_letters()
    names = [name for name, _ in letter.headers()]
    assert letter.value() == b"v" * 600
    assert names[:6] == ["x-error-reason", "x-retry-attempt", "source-topic", "partition", "offset", "epoch"]


async def test_a_thousand_failures_at_once_are_all_dead_lettered_and_committed(stage):
    stage.create(partitions=2)
    stage.produce([{"value": b"bad", "key": b"%d" % (n % 50)} for n in range(1000)])
    async with running(stage.consumer(rejects_bad)):
        await until(lambda: sum(stage.committed(p) or 0 for p in (0, 1)) == 1000)
    assert len(stage.dead_letters()) == 1000


async def test_headers_of_a_record_that_dies_twice_do_not_grow(stage):
    stage.create()
    stage.produce([{"value": b"bad", "headers": [("own", b"1")]}])
    async with running(stage.consumer(rejects_bad)):
        await until(lambda: stage.committed() == 1)
        [first] = stage.dead_letters()
        stage.produce([{"value": first.value(), "headers": first.headers()}])
        await until(lambda: stage.committed() == 2)
    second = stage.dead_letters()[1]
    assert len(second.headers()) == len(first.headers()) + 1  # its history
    assert b'"offset":"0"' in dict(second.headers())["x-redrive-history"]
