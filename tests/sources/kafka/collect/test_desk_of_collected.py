"""Collected dead letters at the desk, as any others: listed, grouped, shown, explained, edited, replayed."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import msgspec
from tests.sources.kafka.stage import LIMIT

from redrive.sources.kafka.collect.convert import FoundRecord, draft_of
from redrive.sources.kafka.dead_letters.dialects import read_account


class Desk:
    """The command line on one store, in processes of its own, as operators use it."""

    def __init__(self, stage, folder) -> None:
        self._stage, self._url = stage, f"sqlite:///{folder / 'letters.db'}"

    def say(self, *words: str, with_notes: bool = False) -> str:
        command = [sys.executable, "-m", "redrive.cli", "--url", self._url, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
        assert done.returncode == 0, done.stderr
        return done.stdout + (done.stderr if with_notes else "")

    def ask(self, *words: str):
        return msgspec.json.decode(self.say(*words, "--json"))

    def collect(self) -> str:
        place = ["--group", self._stage.group, "--servers", self._stage.bootstrap]
        return self.say("kafka", "collect", self._stage.dlq, *place, "--once")


def dead(stage, offset, error, value):
    """A dead letter as Spring writes it."""
    headers = [
        ("own", b"h"),
        ("kafka_dlt-original-topic", stage.topic.encode()),
        ("kafka_dlt-original-partition", (1).to_bytes(4, "big")),
        ("kafka_dlt-original-offset", offset.to_bytes(8, "big")),
        ("kafka_dlt-exception-fqcn", error),
        ("kafka_dlt-exception-message", b"it would not"),
    ]
    return {"key": b"k%d" % offset, "value": value, "headers": headers}


def walk(stage, desk):
    """Go from a collected letter to the edited one back in its topic, verb by verb."""
    assert "3 collected" in desk.collect()
    rows = desk.ask("ls")["letters"]
    assert {(row["kind"], row["status"]) for row in rows} == {(f"kafka.{stage.topic}", "failed")}
    assert len(desk.ask("ls", "-q", f"kind:kafka.{stage.topic}")["letters"]) == 3

    groups = desk.ask("groups")["groups"]
    assert [(one["count"], one["error_type"]) for one in groups] == [
        (2, "java.net.ConnectException"),
        (1, "OutOfStock"),
    ]

    [topic] = desk.ask("groups", "--by", "origin")["groups"]
    assert (topic["value"], topic["count"], topic["fingerprints"]) == (f"kafka:{stage.topic}", 3, 2)
    assert len(desk.ask("ls", "-q", topic["query"])["letters"]) == 3

    [found] = desk.ask("ls", "-q", f"error_type:OutOfStock origin:kafka:{stage.topic}/*")["letters"]
    sheet = desk.ask("show", found["id"])
    assert (sheet["payload"], sheet["letter"]["last_error"]) == ({"quantity": -1}, "it would not")
    assert sheet["origin"].startswith(f"kafka:{stage.topic}/1@2")

    explained = desk.ask("explain", found["id"])
    assert (explained["id"], explained["status"]) == (found["id"], "failed")
    assert [one["error_type"] for one in explained["tries"]] == ["OutOfStock"]
    assert explained["story"]

    edited = desk.ask("edit", found["id"], "--payload", '{"quantity": 1}', "--reason", "a typing error", "--yes")
    assert edited["payload_version"] == sheet["payload_version"] + 1
    assert "redrive kafka collect" in desk.say("replay", found["id"], "--reason", "edited", "--yes", with_notes=True)
    assert "1 sent home" in desk.collect()
    assert desk.ask("show", found["id"])["letter"]["status"] == "delivered"
    assert len(desk.ask("ls", "-q", "status:failed")["letters"]) == 2


async def test_a_collected_letter_is_found_grouped_shown_explained_edited_and_sent_home_as_edited(stage, tmp_path):
    stage.create(partitions=2)
    stage.create(topic=stage.dlq)
    refused = b"java.net.ConnectException"
    stage.produce(
        [
            dead(stage, 0, refused, b'{"quantity": 5}'),
            dead(stage, 1, refused, b'{"quantity": 6}'),
            dead(stage, 2, b"OutOfStock", b'{"quantity": -1}'),
        ],
        topic=stage.dlq,
    )
    await asyncio.to_thread(walk, stage, Desk(stage, tmp_path))
    [home] = stage.read()
    assert (home.partition(), home.key(), msgspec.json.decode(home.value())) == (1, b"k2", {"quantity": 1})
    assert ("own", b"h") in home.headers()
    assert ("x-redrive-replays", b"1") in home.headers()


async def test_a_collected_letter_keeps_when_it_failed_and_how_often_and_counts_no_replay_that_was_not(stage, tmp_path):
    stage.create(topic=stage.dlq)
    ours = {
        "x-error-reason": b"no", "x-retry-attempt": b"3", "source-topic": stage.topic.encode(), "partition": b"0",
        "offset": b"7", "epoch": b"1", "x-redrive-exception": b"ValueError", "x-redrive-schema": b"1",
        "x-redrive-first-failed-at": b"1700000000000", "x-redrive-failed-at": b"1700000009000",
    }  # fmt: skip
    stage.produce([{"value": b"{}", "headers": list(ours.items())}], topic=stage.dlq)
    stage.produce([{**dead(stage, 1, b"E", b"{}"), "timestamp": 1_600_000_000_000}], topic=stage.dlq)
    desk = Desk(stage, tmp_path)
    await asyncio.to_thread(desk.collect)
    rows = (await asyncio.to_thread(desk.ask, "ls"))["letters"]
    sheets = {row["error_type"]: await asyncio.to_thread(desk.ask, "show", row["id"]) for row in rows}
    mine, theirs = sheets["ValueError"]["letter"], sheets["E"]["letter"]
    assert (mine["attempts"], mine["last_error"]) == (3, "no")
    assert (mine["first_failed_at"], mine["failed_at"]) == ("2023-11-14T22:13:20Z", "2023-11-14T22:13:29Z")
    assert theirs["failed_at"] == "2020-09-13T12:26:40Z"
    names = [name for sheet in sheets.values() for name, *_ in sheet["headers"]]
    assert "x-redrive-replays" not in names


def test_failures_of_two_topics_are_never_one_group():
    def group(topic):
        headers = [("source-topic", topic), ("x-error-reason", b"no"), ("x-redrive-schema", b"1")]
        found = FoundRecord(topic="d", topic_id="i", partition=0, offset=0, key=None, value=b"", headers=tuple(headers))
        failure = draft_of(found, read_account(found.headers), "x").failure
        return failure.fingerprint, failure.template

    assert group(b"orders")[0] == group(b"orders")[0] != group(b"bills")[0]
    assert group(b"orders")[1].startswith("orders: ")
