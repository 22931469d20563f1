"""A source above the consumer plugs in its own names, its own format of dead letters, and its own handler."""

from __future__ import annotations

import asyncio
import base64

import msgspec
import pytest
from tests.sources.kafka import workers
from tests.sources.kafka.stage import running, until
from typer.testing import CliRunner

from redrive.cli.root import app as cli
from redrive.core.classify import KAFKA
from redrive.core.failures.known import Meaning
from redrive.core.policy import RetryPolicy
from redrive.core.query import parse
from redrive.sources.kafka import Collector, DeadLetterNames, FailedRecord, MessageParts, record_handler
from redrive.sources.kafka.client.settings import consumer_settings
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.replay import browse, replay
from redrive.stores.memory import MemoryStore

NAMES = DeadLetterNames(
    topic_of=lambda topic: f"dlq.dev.{topic}",
    source_of=lambda dlq: dlq.removeprefix("dlq.dev.") if dlq.startswith("dlq.dev.") else "",
    pattern=r"^dlq\.dev\..*$",
)


class Envelope(msgspec.Struct):
    """A dead letter in one value, as protobuf would have it."""

    topic: str
    partition: int
    offset: int
    error: str
    attempt: int
    disposition: str
    value: str


class EnvelopeCodec:
    """Writes everything into the value, and nothing into headers."""

    may_be_cut = False

    def encode(self, failed: FailedRecord) -> MessageParts:
        event = failed.event
        envelope = Envelope(
            event.topic, event.partition, event.offset, event.failure.message, event.attempt, event.disposition,
            base64.b64encode(event.record.value).decode(),
        )  # fmt: skip
        return MessageParts(b"env:" + event.record.key, msgspec.json.encode(envelope), [])

    def decode(self, parts: MessageParts) -> MessageParts:
        try:
            found = msgspec.json.decode(parts.value or b"", type=Envelope)
        except msgspec.MsgspecError:
            return parts
        told = {"source-topic": found.topic, "partition": found.partition, "offset": found.offset,
                "x-error-reason": found.error, "x-retry-attempt": found.attempt}  # fmt: skip
        headers = [(name, str(value).encode()) for name, value in told.items()]
        return MessageParts(parts.key.removeprefix(b"env:"), base64.b64decode(found.value), headers)


PLUGGED = {"dlq_names": NAMES, "dlq_codec": EnvelopeCodec()}


async def refuses(record):
    if record.value == b"bad":
        raise RuntimeError("it is broken")


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_names_and_format_of_dead_letters_are_plugged_in(stage, exactly_once):
    stage.create()
    stage.produce([{"value": b"bad", "key": b"k"}, {"value": b"good", "key": b"k"}])
    config = stage.kafka(**PLUGGED, exactly_once=exactly_once)
    options = {**PLUGGED, "exactly_once": exactly_once}
    async with running(stage.consumer(refuses, execution={"max_retries": 2}, **options)):
        await until(lambda: stage.committed() == 2)
    dlq = f"dlq.dev.{stage.topic}"
    assert stage.dlq not in stage.topics()

    [message] = stage.read(dlq, **{"isolation.level": "read_committed"})
    assert (message.key(), message.headers()) == (b"env:k", None)
    written = msgspec.json.decode(message.value(), type=Envelope)
    assert (written.topic, written.error, written.attempt) == (stage.topic, "it is broken", 2)
    assert written.disposition == "retries_exhausted"

    [letter] = await asyncio.to_thread(lambda: list(browse(config, dlq, Filter())))
    assert (letter.key, letter.value, letter.home, letter.reason) == (b"k", b"bad", stage.topic, "it is broken")

    store = MemoryStore()
    await Collector(config, [dlq], store, group=stage.group + "-collect").run(until_end=True)
    [kept] = (await store.find(parse(""), limit=9)).letters
    assert (kept.payload, kept.key, kept.kind) == (b"bad", "k", f"kafka.{stage.topic}")
    assert kept.origin == f"kafka:{stage.topic}/0@0"

    report = await asyncio.to_thread(replay, config, dlq, Filter())
    assert report.replayed == 1
    assert [each.value() for each in stage.read()][-1] == b"bad"


async def test_the_command_lists_a_topic_of_any_name_and_any_format(stage):
    dlq = f"dlq.dev.{stage.topic}"
    stage.create(topic=dlq)
    stage.produce([{"value": b"\x00proto", "headers": [("source-topic", b"orders")]}], topic=dlq)
    words = ["kafka", "dlq", "ls", dlq, "--json", "--servers", stage.bootstrap]
    done = await asyncio.to_thread(CliRunner().invoke, cli, words)
    [line] = msgspec.json.decode(done.stdout)["dead_letters"]
    assert line["place"] == f"{dlq}[0]@0"


def test_topic_patterns_leave_dead_letter_topics_of_any_name_out(stage):
    settings = consumer_settings(stage.kafka(dlq_names=NAMES), "g", ["^orders"])
    assert settings["topic.blacklist"] == r"^dlq\.dev\..*$"
    unknown = DeadLetterNames(topic_of=NAMES.topic_of, source_of=NAMES.source_of)
    assert "topic.blacklist" not in consumer_settings(stage.kafka(dlq_names=unknown), "g", ["^orders"])


async def test_a_format_that_must_not_be_cut_halts_its_partition_when_it_is_too_large(stage):
    stage.create(max_message_bytes="2000000")
    stage.create(topic=f"dlq.dev.{stage.topic}", max_message_bytes="2000")
    stage.produce([{"value": b"x" * 5000, "key": b"k"}])

    async def fails(_record):
        raise RuntimeError("no")

    consumer = stage.consumer(fails, execution={"max_retries": 1}, **PLUGGED, dlq_oversize="pointer")
    async with running(consumer):
        await until(lambda: consumer.health.status == "red")
    assert stage.read(f"dlq.dev.{stage.topic}") == []


STRICT = msgspec.structs.replace(KAFKA, name="strict", terminal_meanings=frozenset({Meaning.INTEGRITY}))


@pytest.mark.parametrize("mode", ["async", "process"])
@pytest.mark.parametrize(("rules", "disposition", "tries"), [(STRICT, "terminal", 1), (KAFKA, "retries_exhausted", 4)])
async def test_a_handler_brings_its_own_policy_and_rules(stage, mode, rules, disposition, tries):
    stage.create()
    stage.produce([{"value": b"again", "key": b"k"}])
    handler = record_handler(
        workers.writes_a_row_twice, policy=RetryPolicy.constant(0.001, max_attempts=4), rules=rules
    )
    async with running(stage.consumer(handler, execution={"mode": mode, "max_retries": 9})):
        await until(lambda: stage.committed() == 1)
    [letter] = stage.dead_letters()
    headers = dict(letter.headers())
    assert (headers["x-redrive-disposition"].decode(), int(headers["x-retry-attempt"])) == (disposition, tries)
