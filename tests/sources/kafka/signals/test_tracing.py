"""Records, dead letters and their replay, seen by OpenTelemetry: a real broker."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind
from tests.signals.otel.seen import Seen, is_child, links, traceparent
from tests.sources.kafka import workers
from tests.sources.kafka.stage import running, until

from redrive import Letter, Redrive
from redrive.sources.kafka import KafkaSender, Output
from redrive.sources.kafka.collect.collector import Collector
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.replay import replay

SENT = b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"


@pytest.fixture
def seen():
    return Seen()


async def test_a_record_runs_in_the_trace_of_its_producer_and_its_dead_letter_and_replay_keep_it(stage, seen):
    stage.create()
    stage.produce([{"value": b"soup", "key": b"k", "headers": [("traceparent", SENT)]}, {"value": b"nut", "key": b"k"}])
    inside, broken = [], True

    async def worker(record):
        inside.append(trace.get_current_span().get_span_context().span_id)
        if broken:
            raise RuntimeError("away")

    async with running(stage.consumer(worker, tracing=seen.tracing, execution={"max_retries": 1})):
        await until(lambda: stage.committed() == 2)
        first, second = seen.spans("handle")
        assert f"{first.get_span_context().trace_id:032x}" == "ab" * 16
        assert f"{first.parent.span_id:016x}" == "cd" * 8
        assert second.parent is None
        assert inside == [span.get_span_context().span_id for span in (first, second)]
        assert (first.name, first.kind) == (f"handle {stage.topic}", SpanKind.CONSUMER)
        assert dict(first.attributes) == {
            "messaging.system": "kafka",
            "messaging.operation.name": "handle",
            "messaging.operation.type": "process",
            "messaging.destination.name": stage.topic,
            "messaging.destination.partition.id": "0",
            "messaging.consumer.group.name": stage.group,
            "messaging.kafka.offset": 0,
            "redrive.attempt": 1,
            "redrive.outcome": "failed",
            "redrive.category": "transient",
            "error.type": "RuntimeError",
        }
        sent = seen.spans("send")
        assert [span.name for span in sent] == [f"send {stage.dlq}"] * 2
        assert is_child(sent[0], first)
        assert is_child(sent[1], second)
        told = [dict(letter.headers())["traceparent"] for letter in stage.dead_letters()]
        assert told == [SENT, traceparent(sent[1]).encode()]  # a record's own headers stay as they are
        broken = False
        await asyncio.to_thread(replay, stage.kafka(), stage.dlq, Filter(), tracing=seen.tracing)
        await until(lambda: stage.committed() == 4)
    again = seen.spans("handle")[2:]
    assert [span.parent for span in again] == [None, None]
    assert links(again[0]) == [first.parent.span_id]
    assert links(again[1]) == [sent[1].get_span_context().span_id]
    assert seen.spans("send")[2].attributes["messaging.batch.message_count"] == 2
    assert sum(point.count for point in seen.metrics()["messaging.process.duration"]) == 4


async def test_a_batch_is_one_span_with_a_link_to_each_record(stage, seen):
    stage.create()
    stage.produce([{"value": b"%d" % n, "headers": [("traceparent", SENT)]} for n in range(3)])

    def worker(records):
        assert trace.get_current_span().get_span_context().is_valid

    async with running(stage.consumer(worker, tracing=seen.tracing, execution={"batch_size": 10})):
        await until(lambda: stage.committed() == 3)
    spans = seen.spans("handle")
    assert sum(len(links(span)) or 1 for span in spans) == 3


async def test_a_worker_process_has_spans_too(stage, seen):
    stage.create()
    stage.produce([{"value": b"1", "headers": [("traceparent", SENT)]}])
    async with running(stage.consumer(workers.fine, tracing=seen.tracing, execution={"mode": "process"})):
        await until(lambda: stage.committed() == 1)
    assert f"{seen.one('handle').parent.span_id:016x}" == "cd" * 8


async def test_what_a_worker_sends_on_exactly_once_continues_its_trace(stage, seen):
    stage.create()
    target = f"{stage.topic}-out"
    stage.create(topic=target)
    stage.produce([{"value": b"1", "headers": [("traceparent", SENT)]}])

    async def worker(record):
        return Output(topic=target, value=b"2")

    async with running(stage.consumer(worker, tracing=seen.tracing, exactly_once=True)):
        await until(lambda: len(stage.read(target)) == 1)
    assert dict(stage.read(target)[0].headers())["traceparent"] == traceparent(seen.one("handle")).encode()
    sent = seen.one("send")
    assert (sent.name, sent.kind) == (f"send {target}", SpanKind.PRODUCER)
    assert is_child(sent, seen.one("handle"))


async def test_a_letter_that_is_sent_to_kafka_has_a_span_that_its_record_continues(stage, seen):
    stage.create()
    sender = KafkaSender(stage.kafka(), topic=stage.topic, tracing=seen.tracing)
    app = Redrive("memory://", tracing=seen.tracing)
    app.publisher("order", sender)
    async with app:
        await app.enqueue("order", {"id": 1})
        await app.run(until_idle=True)
    sender.close()
    sent = seen.one("send")
    assert (sent.name, sent.kind) == (f"send {stage.topic}", SpanKind.PRODUCER)
    assert is_child(sent, seen.one("handle"))
    assert dict(stage.read(stage.topic)[0].headers())["traceparent"] == traceparent(sent).encode()
    refused = KafkaSender(stage.kafka(), topic=stage.topic, tracing=False)
    await refused.publish(Letter("1", "default", "order", b"{}"))
    refused.close()
    assert len(seen.spans("send")) == 1


async def test_a_collected_dead_letter_keeps_its_trace(stage, seen):
    stage.create()
    stage.produce([{"value": b"soup", "headers": [("traceparent", SENT)]}])

    async def worker(record):
        raise RuntimeError("away")

    async with running(stage.consumer(worker, execution={"max_retries": 1})):
        await until(lambda: stage.committed() == 1)
    async with Redrive("memory://", tracing=seen.tracing) as app:
        await Collector(stage.kafka(), [stage.dlq], app.store).run(until_end=True)
        (letter,) = (await app.desk.ls("status:failed")).letters
    assert letter.metadata["traceparent"] == SENT.decode()
    assert links(seen.one("enqueue")) == [int("cd" * 8, 16)]
