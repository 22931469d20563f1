"""What stands in the way of a replay: it stops there, says so, and what went before it is done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from confluent_kafka import KafkaError, TopicPartition
from typer.testing import CliRunner

from redrive.cli.root import app
from redrive.errors import SourceError
from redrive.sources.kafka import KafkaConfig
from redrive.sources.kafka.client.errors import Heard, said
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.reader import Reader
from redrive.sources.kafka.replay.replay import browse, replay
from redrive.sources.kafka.replay.unpark import _remove_note, parked_keys, unpark

if TYPE_CHECKING:
    from tests.sources.kafka.stage import Stage

NOBODY = KafkaConfig(bootstrap_servers="127.0.0.1:1")


def dead(stage: Stage, number: int, **more: object) -> dict[str, object]:
    """A dead letter of *stage*'s topic."""
    headers = [("source-topic", stage.topic.encode()), ("partition", b"0"), ("offset", b"%d" % number)]
    return {"value": b"%d" % number, "key": b"k", "headers": [*headers, ("x-redrive-schema", b"1")], **more}


def prepare(stage: Stage, *letters: dict[str, object], **config: str) -> None:
    stage.create(**config)
    stage.create(topic=stage.dlq, max_message_bytes="4000000")
    stage.produce(letters, topic=stage.dlq, **{"message.max.bytes": 4_000_000})


def values(stage: Stage) -> list[bytes]:
    return [message.value() for message in stage.read()]


def test_what_stands_before_a_letter_that_may_not_go_home_is_sent_once(stage):
    stray = {"value": b"x", "headers": [("source-topic", b"elsewhere")]}
    prepare(stage, dead(stage, 0), dead(stage, 1), stray, dead(stage, 3))
    for _ in range(2):  # the second one finds the stray first
        with pytest.raises(SourceError, match=r"@2 came from 'elsewhere', which this replay may not write to"):
            replay(stage.kafka(), stage.dlq, Filter())
    assert values(stage) == [b"0", b"1"]
    assert replay(stage.kafka(), stage.dlq, Filter(first=3)).replayed == 1


def test_a_letter_that_its_topic_never_takes_does_not_send_those_before_it_again(stage):
    prepare(stage, dead(stage, 0), dead(stage, 1, value=b"x" * 2_000_000), max_message_bytes="100000")
    for _ in range(2):
        with pytest.raises(SourceError, match=rf"1 letter was not confirmed .* {stage.dlq}\[0\]@1 to '{stage.topic}'"):
            replay(stage.kafka(), stage.dlq, Filter())
    assert values(stage) == [b"0"]


def test_a_value_that_is_nowhere_to_be_had_does_not_send_those_before_it_again(stage):
    cut = dead(stage, 1)
    cut["headers"] = [*cut["headers"], ("x-redrive-payload-ref", b"file:/gone"), ("x-redrive-payload-sha256", b"0")]
    prepare(stage, dead(stage, 0), cut)
    for _ in range(2):
        with pytest.raises(SourceError, match="is only in 'file:/gone'"):
            replay(stage.kafka(), stage.dlq, Filter())
    assert values(stage) == [b"0"]


def test_a_home_that_is_gone_is_said_with_the_way_out(stage):
    stage.create(topic=stage.dlq)
    stage.produce([dead(stage, 0)], topic=stage.dlq)
    with pytest.raises(SourceError, match=rf"to '{stage.topic}': Broker: Unknown topic or partition; check its name"):
        replay(stage.kafka(), stage.dlq, Filter())


def test_a_dry_run_says_at_which_letter_a_replay_will_stop(stage):
    prepare(stage, dead(stage, 0), {"value": b"x"}, dead(stage, 2))
    report = replay(stage.kafka(), stage.dlq, Filter(), dry_run=True)
    assert (report.seen, report.replayed, report.refused) == (3, 2, 1)
    assert "does not say where it came from" in report.refusal
    words = ["kafka", "replay", stage.dlq, "--dry-run", "--servers", stage.bootstrap]
    assert "stops at the first of 1 that it may not send" in CliRunner().invoke(app, words).stdout


def test_a_replay_that_is_asked_to_stop_remembers_what_it_sent(stage):
    prepare(stage, *(dead(stage, number) for number in range(5)))
    asked = iter([False, False, True])  # within the pace of one batch, before the next
    report = replay(stage.kafka(), stage.dlq, Filter(), rate=1.0, is_stopping=lambda: next(asked, True))
    assert report.stopped
    sent = values(stage)
    assert report.replayed == len(sent) < 5
    assert replay(stage.kafka(), stage.dlq, Filter()).replayed == 5 - len(sent)
    assert values(stage) == [b"%d" % number for number in range(5)]


def test_a_dead_letter_topic_that_was_made_anew_is_replayed_from_its_beginning(stage):
    prepare(stage, dead(stage, 0))
    reader = Reader(stage.kafka(), stage.dlq, Filter().group(stage.dlq), resume=True)
    reader._consumer.commit(offsets=[TopicPartition(stage.dlq, 0, 7)], asynchronous=False)  # as far as the old one went
    reader.close()
    assert replay(stage.kafka(), stage.dlq, Filter()).replayed == 1


@pytest.mark.parametrize("count", [b"9" * 5000, b"-1", b"\xff", "²".encode()])
def test_a_count_of_replays_that_is_no_number_stops_nobody(stage, count):
    odd = dead(stage, 0)
    odd["headers"] = [*odd["headers"], ("x-redrive-replays", count)]
    prepare(stage, odd)
    [letter] = browse(stage.kafka(), stage.dlq, Filter())
    assert letter.replays == 0
    assert replay(stage.kafka(), stage.dlq, Filter()).replayed == 1
    [home] = stage.read()
    assert dict(home.headers())["x-redrive-replays"] == b"1"


def test_a_look_at_one_offset_reads_no_others(stage):
    prepare(stage, *(dead(stage, number) for number in range(9)))
    reader = Reader(stage.kafka(), stage.dlq, "browser", resume=False, wanted=Filter(partition=0, first=4, last=5))
    found = [message.offset() for batch in reader.batches(500) for message in batch]
    reader.close()
    assert found == [4, 5]
    assert list(browse(stage.kafka(), stage.dlq, Filter(partition=3))) == []
    assert list(browse(stage.kafka(), stage.dlq, Filter(first=100))) == []


# ---------------------------------------------------------------------- keys


def test_a_key_that_is_no_text_is_found_by_what_the_list_shows(stage):
    prepare(stage, dead(stage, 0, key=b"\xff\x00k"), dead(stage, 1))
    listed = CliRunner().invoke(app, ["kafka", "dlq", "ls", stage.dlq, "--json", "--servers", stage.bootstrap])
    shown = msgspec.json.decode(listed.stdout)["dead_letters"][0]["key"]
    assert shown == "\\xff\\x00k"
    assert [letter.offset for letter in browse(stage.kafka(), stage.dlq, Filter(key=shown))] == [0]


def test_two_keys_are_never_meant_by_one_text(stage):
    prepare(stage, dead(stage, 0, key=b"\xff"), dead(stage, 1, key=rb"\xff"))

    def meant(key):
        words = ["kafka", "dlq", "ls", stage.dlq, "--json", "--servers", stage.bootstrap, "--key", key]
        found = msgspec.json.decode(CliRunner().invoke(app, words).stdout)["dead_letters"]
        return [line["place"][-1] for line in found]

    assert (meant(r"\xff"), meant(r"\\xff"), meant(r"\xFF")) == (["0"], ["1"], ["0"])


def park(stage: Stage, key: bytes, note: bytes = b"0") -> None:
    stage.create(topic=f"{stage.dlq}.parked", cleanup_policy="compact")
    stage.produce([{"value": note, "key": key}], topic=f"{stage.dlq}.parked")


def test_a_key_that_is_no_text_can_be_unparked(stage):
    prepare(stage, dead(stage, 0, key=b"\xff"))
    park(stage, b"\xff")
    assert unpark(stage.kafka(), stage.dlq, "\\xff").replayed == 1
    assert parked_keys(stage.kafka(), stage.dlq) == {}


def test_unparking_a_key_that_is_not_parked_sends_nothing(stage):
    prepare(stage, dead(stage, 0))
    park(stage, b"another")
    with pytest.raises(SourceError, match=r"'k' is not parked .* `redrive kafka dlq parked` lists"):
        unpark(stage.kafka(), stage.dlq, "k")
    assert values(stage) == []


def test_unparking_a_key_in_a_topic_without_parked_keys_sends_nothing(stage):
    prepare(stage, dead(stage, 0))
    with pytest.raises(SourceError, match="cannot list parked keys"):
        unpark(stage.kafka(), stage.dlq, "k")
    assert values(stage) == []


def test_a_key_whose_dead_letter_came_back_too_often_stays_parked(stage):
    often = dead(stage, 0)
    often["headers"] = [*often["headers"], ("x-redrive-replays", b"3")]
    prepare(stage, often, dead(stage, 1))
    park(stage, b"k")
    with pytest.raises(SourceError, match=r"'k' stays parked: 1 of its dead letters .* raise max_replays"):
        unpark(stage.kafka(), stage.dlq, "k")
    assert values(stage) == []
    assert unpark(stage.kafka(), stage.dlq, "k", max_replays=9).replayed == 2


def test_a_note_of_a_parked_key_that_somebody_else_wrote_stops_nobody(stage):
    park(stage, b"k", note=b"no number")
    assert parked_keys(stage.kafka(), stage.dlq) == {b"k": -1}


# ---------------------------------------------------------------------- no broker


@pytest.mark.parametrize(
    "ask",
    [
        lambda: list(browse(NOBODY, "orders.dlq", Filter())),
        lambda: replay(NOBODY, "orders.dlq", Filter(), transactional=True),
        lambda: parked_keys(NOBODY, "orders.dlq"),
        lambda: _remove_note(NOBODY, "orders.dlq", b"k"),
    ],
    ids=["browse", "replay", "parked", "unpark"],
)
async def test_a_broker_that_is_not_there_is_said_in_one_sentence_with_its_address(ask, monkeypatch, capfd):
    monkeypatch.setattr("redrive.sources.kafka.replay.reader.REQUEST", 0.5)
    with pytest.raises(SourceError, match=r"no broker answers at 127\.0\.0\.1:1 \(.*; see KAFKA_BOOTSTRAP_SERVERS"):
        await asyncio.to_thread(ask)
    assert "127.0.0.1:1/" not in capfd.readouterr().err  # hundreds of lines, if the client says it by itself


def test_what_a_client_hears_beside_an_outage_says_why():
    heard = Heard()
    heard(KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: wrong user"))
    heard(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert "wrong user" in said(KafkaError(KafkaError._TRANSPORT), NOBODY, heard)
