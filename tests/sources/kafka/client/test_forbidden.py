"""What a client may not do is said with the way out, and never taken for an outage or for nothing."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from tests.servers.kafka import RULES, Broker
from tests.sources.kafka.needed import needed
from tests.sources.kafka.stage import LIMIT, Stage, running, until

from redrive import Reject
from redrive.engine.clock import SystemClock
from redrive.errors import SourceError
from redrive.sources.kafka import Collector
from redrive.sources.kafka.dead_letters import topics
from redrive.sources.kafka.dead_letters.topics import DeadLetterTopics
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.reader import Reader
from redrive.sources.kafka.replay.replay import replay
from redrive.stores.memory import MemoryStore


async def rule(stage: Stage, kind: ResourceType, name: str, **words: str) -> list[AclBinding]:
    """Let the broker know what may be done, as `ALLOW="READ DESCRIBE"`; return once it goes by it."""
    rules = [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*",
            AclOperation[operation], AclPermissionType[permission],
        )
        for permission, operations in words.items()
        for operation in operations.split()
    ]  # fmt: skip
    for answer in stage.admin.create_acls(rules).values():
        answer.result(LIMIT)
    await until(lambda: set(rules) <= rules_of(stage, kind, name))
    return rules


async def unrule(stage: Stage, kind: ResourceType, name: str) -> None:
    for answer in stage.admin.delete_acls([every(kind, name)]).values():
        answer.result(LIMIT)
    await until(lambda: not rules_of(stage, kind, name))


def rules_of(stage: Stage, kind: ResourceType, name: str) -> set[AclBinding]:
    return set(stage.admin.describe_acls(every(kind, name)).result(LIMIT))


def every(kind: ResourceType, name: str) -> AclBindingFilter:
    anything = AclOperation.ANY, AclPermissionType.ANY
    return AclBindingFilter(kind, name, ResourcePatternType.LITERAL, None, None, *anything)


class Patient(SystemClock):
    """For it no time passes, so that it asks until there is an answer, however slow the machine is."""

    def __init__(self):
        self.monotonic = lambda: 0.0


async def rejects(record):
    raise Reject("no")


async def start(stage: Stage, **settings: object) -> None:
    await asyncio.wait_for(stage.consumer(rejects, **settings).run(), LIMIT)


@pytest.fixture
async def guarded(stage):
    """A source, on a broker with rules."""
    stage.create(partitions=2)
    return stage


@pytest.fixture
async def alone(request):
    """A source, on a broker whose rules for everything concern nobody else."""
    with needed(), Broker(**RULES) as broker, closing(Stage(broker.bootstrap, request.node.name)) as stage:
        stage.create(partitions=2)
        yield stage


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False])
async def test_a_dead_letter_topic_that_may_not_be_written_to_is_found_at_the_start(guarded, is_there):
    if is_there:
        guarded.create(topic=guarded.dlq)
    await rule(guarded, ResourceType.TOPIC, guarded.dlq, ALLOW="READ DESCRIBE DESCRIBE_CONFIGS")
    with pytest.raises(
        SourceError, match=r"may not write to the dead-letter topic .*; allow it to, or set dlq_enabled"
    ):
        await start(guarded)


@pytest.mark.slow
async def test_a_dead_letter_topic_that_is_hidden_is_not_taken_for_one_that_somebody_just_made(guarded):
    guarded.create(topic=guarded.dlq)
    await rule(guarded, ResourceType.TOPIC, guarded.dlq, DENY="ALL")
    with pytest.raises(SourceError, match="may not write to the dead-letter topic"):
        await start(guarded)


@pytest.mark.slow
async def test_of_a_dead_letter_topic_that_is_hidden_and_must_not_be_made_health_does_not_say_that_it_is_missing(
    guarded,
):
    guarded.create(topic=guarded.dlq)
    await rule(guarded, ResourceType.TOPIC, guarded.dlq, DENY="ALL")
    consumer = guarded.consumer(rejects, dlq_create_topics=False)
    async with running(consumer):
        await until(lambda: consumer.health.status == "degraded")
        [why] = [each for each in consumer.health.reasons if guarded.dlq in each]
    assert why == (
        f"no such topic that this client may see: {guarded.dlq}; "
        "create it, allow this client to see it and to write to it, or set dlq_create_topics=True"
    )


@pytest.mark.slow
async def test_a_topic_of_parked_keys_that_may_not_be_read_stops_the_consumer(guarded):
    parked = f"{guarded.dlq}.parked"
    guarded.create(topic=parked, cleanup_policy="compact")
    await rule(guarded, ResourceType.TOPIC, parked, ALLOW="WRITE DESCRIBE DESCRIBE_CONFIGS")
    with pytest.raises(
        SourceError, match=r"cannot read the parked keys from .*parked.*; allow this client the topic, or set"
    ):
        await start(guarded, dlq_park_keys=True)


@pytest.mark.slow
async def test_a_topic_of_parked_keys_is_not_made_by_who_is_to_make_none(guarded):
    guarded.create(topic=guarded.dlq)
    with pytest.raises(
        SourceError, match=r"cannot see the topic of parked keys .*; create it with cleanup.policy=compact, or set"
    ):
        await start(guarded, dlq_park_keys=True, dlq_create_topics=False)
    assert f"{guarded.dlq}.parked" not in guarded.topics()


@pytest.mark.slow
@pytest.mark.parametrize("it_is", ["absent", "visible", "hidden"])
async def test_a_topic_of_parked_keys_that_may_not_be_written_to_is_found_at_the_start(guarded, it_is):
    parked = f"{guarded.dlq}.parked"
    if it_is != "absent":
        guarded.create(topic=parked, cleanup_policy="compact")
    words = {"DENY": "ALL"} if it_is == "hidden" else {"ALLOW": "READ DESCRIBE DESCRIBE_CONFIGS"}
    await rule(guarded, ResourceType.TOPIC, parked, **words)
    with pytest.raises(SourceError, match=r"may not write to the topic of parked keys .* or set dlq_park_keys=False"):
        await start(guarded, dlq_park_keys=True)


@pytest.mark.slow
async def test_a_dead_letter_topic_that_may_not_be_created_is_said_at_the_start_with_the_way_out(alone):
    cluster = ResourceType.BROKER, "kafka-cluster"
    await rule(alone, ResourceType.TOPIC, alone.dlq, DENY="CREATE", ALLOW="WRITE")
    await rule(alone, *cluster, ALLOW="ALL", DENY="CREATE")
    why = r"this client sees no dead-letter topic .* and cannot create it \(.*uthorization failed.*\); "
    with pytest.raises(SourceError, match=f"{why}create it, allow this client to"):
        await start(alone)
    assert alone.dlq not in alone.topics()


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False])
async def test_a_client_that_may_write_and_nothing_else_starts_and_writes_its_dead_letters(guarded, is_there):
    if is_there:
        guarded.create(topic=guarded.dlq)
    await rule(guarded, ResourceType.TOPIC, guarded.dlq, ALLOW="WRITE")
    guarded.produce([{"value": b"bad", "partition": 1}])
    consumer = guarded.consumer(rejects)
    async with running(consumer) as task:
        await until(lambda: task.done() or guarded.committed(1) == 1)
        assert not task.done()
        await until(lambda: consumer.health.status == "green")


async def test_a_dead_letter_topic_that_somebody_makes_in_the_same_moment_is_used_as_it_is(stage):
    stage.create(partitions=3)
    made = DeadLetterTopics(stage.kafka(), Patient())
    known = made._list()
    stage.create(topic=stage.dlq, partitions=2)
    made._prepare(stage.topic, known)
    assert made.partitions(stage.dlq) == 2


async def test_a_dead_letter_topic_that_somebody_makes_in_the_same_moment_is_refused_if_it_is_compacted(stage):
    stage.create()
    made = DeadLetterTopics(stage.kafka(), Patient())
    known = made._list()
    stage.create(topic=stage.dlq, cleanup_policy="compact")
    with pytest.raises(SourceError, match="is compacted"):
        made._prepare(stage.topic, known)


def test_a_node_that_does_not_know_a_new_topic_yet_is_asked_again(stage):
    class Late(Patient):
        def block(self, seconds):
            with suppress(KafkaException):  # it was made when we were here before
                stage.create(topic=stage.dlq, partitions=3)

    assert len(DeadLetterTopics(stage.kafka(), Late())._describe(stage.dlq).partitions) == 3


def test_a_node_that_never_knows_a_new_topic_keeps_nobody_from_starting(stage):
    rests = []

    class Hasty(SystemClock):
        def __init__(self):
            self.monotonic = lambda: sum(rests)

        def block(self, seconds):
            rests.append(seconds)

    assert DeadLetterTopics(stage.kafka(), Hasty())._check(stage.dlq) == 0
    assert topics._BIRTH <= sum(rests) < topics._BIRTH + 1


async def test_what_may_be_written_is_asked_as_the_client_that_will_write(stage, monkeypatch):
    stage.create()
    stage.create(topic=stage.dlq)
    monkeypatch.setattr(topics, "_LIMIT", 2.0)
    as_another = {"security.protocol": "ssl", "enable.ssl.certificate.verification": False, "log_level": 0}
    with pytest.raises(topics.BrokerAway):  # here nobody speaks TLS
        DeadLetterTopics(stage.kafka(producer_settings=as_another)).prepare([stage.topic])


@pytest.mark.slow
async def test_a_group_that_is_forbidden_is_named_as_the_cause(stage):
    stage.create()
    stage.create(topic=stage.dlq)
    for group in (Filter().group(stage.dlq), stage.group):
        await rule(stage, ResourceType.GROUP, group, DENY="READ")
    with pytest.raises(SourceError, match=r"Group authorization failed.*; allow this client the group"):
        await asyncio.to_thread(replay, stage.kafka(), stage.dlq, Filter())
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

    monkeypatch.setattr("redrive.sources.kafka.replay.reader.Consumer", Client)
    with closing(Reader(stage.kafka(), stage.dlq, stage.group, resume=True)) as reader:
        assert sum(len(batch) for batch in reader.batches(9)) == 1


class _Refused:
    def __init__(self, place: TopicPartition, error: KafkaError) -> None:
        self.partition, self.offset, self.error = place.partition, place.offset, error
