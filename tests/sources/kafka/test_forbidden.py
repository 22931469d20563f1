"""What a client may not do is said with the way out, and never taken for an outage or for nothing."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from tests.servers.kafka import Broker, Missing
from tests.sources.kafka.stage import LIMIT, Stage

from redrive.errors import SourceError
from redrive.sources.kafka import Collector
from redrive.sources.kafka.choice import Choice
from redrive.sources.kafka.reading import Reader
from redrive.sources.kafka.replay import replay
from redrive.stores.memory import MemoryStore

RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def forbid(stage: Stage, kind: ResourceType, name: str) -> None:
    rule = AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.READ, AclPermissionType.DENY
    )
    for answer in stage.admin.create_acls([rule]).values():
        answer.result(LIMIT)


@pytest.fixture(scope="module")
def strict():
    try:
        with Broker(**RULES) as broker:
            yield broker
    except Missing as why:
        pytest.skip(str(why))


@pytest.mark.slow
async def test_a_group_that_is_forbidden_is_named_as_the_cause(strict):
    with closing(Stage(strict.bootstrap, "forbidden-group")) as stage:
        stage.create()
        stage.create(topic=stage.dlq)
        for group in (Choice().group(stage.dlq), stage.group):
            forbid(stage, ResourceType.GROUP, group)
        with pytest.raises(SourceError, match=r"Group authorization failed.*; allow this client the group"):
            await asyncio.to_thread(replay, stage.kafka(), stage.dlq, Choice())
        with pytest.raises(SourceError, match=r"cannot consume .*; allow this client the group"):
            await asyncio.wait_for(stage.consumer(print).run(), LIMIT)
        with pytest.raises(SourceError, match=r"cannot collect .*; allow this client the group"):
            await Collector(stage.kafka(), [stage.dlq], MemoryStore(), group=stage.group).run()


@pytest.mark.parametrize("where", ["answer", "question"])
def test_a_coordinator_that_only_just_starts_is_asked_again(stage, monkeypatch, where):
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"x"}], topic=stage.dlq)
    starting = [KafkaError(KafkaError.NOT_COORDINATOR)] * 2

    class Client(Consumer):
        def committed(self, places, timeout):
            if not starting:
                return super().committed(places, timeout)
            if where == "question":
                raise KafkaException(starting.pop())
            place = TopicPartition(stage.dlq, 0)
            return [_Refused(place, starting.pop())]

    monkeypatch.setattr("redrive.sources.kafka.reading.Consumer", Client)
    with closing(Reader(stage.kafka(), stage.dlq, stage.group, resume=True)) as reader:
        assert sum(len(batch) for batch in reader.batches(9)) == 1


class _Refused:
    def __init__(self, place: TopicPartition, error: KafkaError) -> None:
        self.partition, self.offset, self.error = place.partition, place.offset, error
