"""Batches that are larger than a topic takes, of messages that are not: each is taken, whole, by itself."""

from __future__ import annotations

import pytest
from tests.sources.kafka.stage import running, until

from redrive import Redrive, Reject, Status
from redrive.sources.kafka import KafkaSender
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.replay import replay

TOGETHER = {"linger.ms": 500}  # so that they meet in one batch
VALUE = b"x" * 1000


def dead(stage, number):
    headers = [("source-topic", stage.topic.encode()), ("x-redrive-schema", b"1"), ("own", b"h")]
    return {"value": b"%d" % number + VALUE, "headers": headers}


async def rejects(record):
    raise Reject("no")


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_dead_letters_that_fit_by_themselves_keep_everything(stage, exactly_once):
    stage.create()
    stage.create(topic=stage.dlq, max_message_bytes="5000")
    stage.produce([{"value": VALUE, "key": b"%d" % n, "headers": [("own", b"h")]} for n in range(50)])
    consumer = stage.consumer(rejects, producer_settings=TOGETHER, exactly_once=exactly_once)
    async with running(consumer):
        await until(lambda: stage.committed() == 50)
    letters = stage.read(stage.dlq, **{"isolation.level": "read_committed"})
    assert len(letters) == 50
    assert {(letter.value(), dict(letter.headers()).get("own")) for letter in letters} == {(VALUE, b"h")}
    assert all("x-redrive-id" in dict(letter.headers()) for letter in letters)


async def test_letters_that_fit_by_themselves_are_delivered_beside_one_that_never_will(stage):
    stage.create(max_message_bytes="5000")
    app = Redrive("memory://")
    sender = KafkaSender(stage.kafka(producer_settings=TOGETHER), topic=stage.topic)
    app.publisher("order.paid", sender)
    async with app:
        small = [await app.enqueue("order.paid", VALUE) for _ in range(20)]
        large = await app.enqueue("order.paid", VALUE * 10)
        assert await app.run(until_idle=True, signals=False)
        assert {(await app.store.get(each.id)).status for each in small} == {Status.DELIVERED}
        refused = await app.store.get(large.id)
    sender.close()
    assert (refused.status, "Message size too large" in refused.last_error) == (Status.FAILED, True)
    assert len(stage.read()) == 20


@pytest.mark.parametrize("transactional", [False, True])
def test_a_replay_sends_letters_home_that_fit_by_themselves(stage, transactional):
    stage.create(max_message_bytes="5000")
    stage.create(topic=stage.dlq)
    stage.produce([dead(stage, number) for number in range(50)], topic=stage.dlq)
    receipt = replay(stage.kafka(producer_settings=TOGETHER), stage.dlq, Filter(), transactional=transactional)
    assert receipt.replayed == 50
    assert sorted(each.value() for each in stage.read()) == sorted(b"%d" % n + VALUE for n in range(50))
