"""`redrive kafka replay` acts safely: it asks, says what others have sent, and is in the audit log."""

from __future__ import annotations

import msgspec
import pytest
from tests.sources.kafka.replay.test_replay_obstacles import dead, park, prepare, values
from typer.testing import CliRunner

from redrive.cli.root import app
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.other_replays import other_replays
from redrive.sources.kafka.replay.replay import replay


@pytest.fixture
def run(stage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRIVE_URL", raising=False)

    def run(*words, answer="", code=0):
        done = CliRunner().invoke(app, [*words, "--servers", stage.bootstrap], input=answer)
        assert done.exit_code == code, done.output
        return done

    return run


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Let there be a store; return what its audit log says, oldest first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_BY", "ana")
    assert CliRunner().invoke(app, ["migrate"]).exit_code == 0

    def log():
        entries = msgspec.json.decode(CliRunner().invoke(app, ["audit", "--json"]).stdout)["entries"]
        return [(one["by"], one["verb"], one["target"], one["count"], one["reason"]) for one in reversed(entries)]

    return log


def test_without_a_filter_nothing_is_sent_unless_all_is_said(stage, run):
    prepare(stage, dead(stage, 0))
    assert "give a filter" in run("kafka", "replay", stage.dlq, "--yes", code=2).output
    assert "exclude each other" in run("kafka", "replay", stage.dlq, "--all", "--key", "k", "--yes", code=2).output
    assert values(stage) == []
    assert "1 would be replayed" in run("kafka", "replay", stage.dlq, "--dry-run").output
    run("kafka", "replay", stage.dlq, "--all", "--yes")
    assert values(stage) == [b"0"]


def test_it_says_what_it_would_send_and_asks(stage, run):
    prepare(stage, dead(stage, 0), dead(stage, 1))
    asked = run("kafka", "replay", stage.dlq, "--all", answer="n\n", code=1)
    assert "2 would be replayed" in asked.output
    assert f"send 2 letters of {stage.dlq} back?" in asked.output
    assert values(stage) == []
    run("kafka", "replay", stage.dlq, "--all", answer="y\n")
    assert values(stage) == [b"0", b"1"]
    run("kafka", "replay", stage.dlq, "--all")  # nothing is left to send, so there is nothing to ask


def test_it_says_how_many_another_replay_has_sent_before(stage, run):
    prepare(stage, dead(stage, 0), dead(stage, 1, key=b"other"), dead(stage, 2))
    run("kafka", "replay", stage.dlq, "--key", "k", "--yes")
    run("kafka", "replay", stage.dlq, "--to-offset", "0", "--transactional", "--yes")
    asked = run("kafka", "replay", stage.dlq, "--all", answer="n\n", code=1)
    assert "2 of them were sent before by another replay" in asked.output
    found = msgspec.json.decode(run("kafka", "replay", stage.dlq, "--all", "--yes", "--json").stdout)
    assert (found["replayed"], found["sent_before"]) == (3, 2)
    again = other_replays(stage.kafka(), stage.dlq, Filter())
    assert replay(stage.kafka(), stage.dlq, Filter(), earlier=again).replayed == 0


def test_a_topic_whose_name_begins_the_same_has_other_replays(stage, run):
    prepare(stage, dead(stage, 0))
    other = f"{stage.dlq}-0123456789ab"
    stage.create(topic=other)
    stage.produce([dead(stage, 0)], topic=other)
    replay(stage.kafka(), other, Filter(), allowed=(stage.topic,))
    found = msgspec.json.decode(run("kafka", "replay", stage.dlq, "--dry-run", "--json").stdout)
    assert (found["replayed"], found["sent_before"]) == (1, 0)


def test_who_replayed_what_and_why_is_in_the_audit_log(stage, run, log):
    prepare(stage, dead(stage, 0), dead(stage, 1))
    run("kafka", "replay", stage.dlq, "--to-offset", "0", "--yes", "--reason", "the bank is back")
    target = f'{stage.dlq} {{"last":0}}'
    assert log() == [
        ("ana", "plan kafka replay", target, 0, "the bank is back"),
        ("ana", "kafka replay", target, 1, "the bank is back"),
    ]


def test_what_was_sent_before_a_replay_broke_off_is_in_the_audit_log_too(stage, run, log):
    prepare(stage, dead(stage, 0), {"value": b"x", "headers": [("source-topic", b"elsewhere")]})
    run("kafka", "replay", stage.dlq, "--all", "--yes", code=1)
    assert log()[-1][1:4] == ("kafka replay", f"{stage.dlq} {{}}", 1)


def test_where_there_is_no_store_it_says_that_nobody_writes_it_down(stage, run, tmp_path):
    prepare(stage, dead(stage, 0))
    assert (
        "this act is not audited, because there is no store"
        in run("kafka", "replay", stage.dlq, "--all", "--yes").stderr
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["unpark", "release"])
def test_an_unparked_key_is_in_the_audit_log(stage, run, log, verb):
    prepare(stage, dead(stage, 0, key=b"\xff"))
    park(stage, b"\xff")
    done = run("kafka", verb, stage.dlq, r"\xff", "--json")
    assert msgspec.json.decode(done.stdout) == {"topic": stage.dlq, "key": "\\xff", "replayed": 1}
    assert log()[-1][1:4] == ("kafka unpark", f"{stage.dlq} \\xff", 1)
    assert ("is now `redrive kafka unpark`" in done.stderr) == (verb == "release")


def test_the_list_shows_time_key_and_error_below_headings_and_says_if_there_are_more(stage, run):
    prepare(stage, *(dead(stage, n, timestamp=1_700_000_000_000) for n in range(3)))
    shown = run("kafka", "dlq", "ls", stage.dlq, "-n", "2").output
    assert [word in shown for word in ("place", "tries", "2023-11-14 22:13", "2 shown; there are more")] == [True] * 4
    [line, _] = msgspec.json.decode(run("kafka", "dlq", "ls", stage.dlq, "-n", "2", "--json").stdout)["dead_letters"]
    assert (line["timestamp"], line["key"]) == ("2023-11-14T22:13:20Z", "k")
    assert line["attempt"] is None or isinstance(line["attempt"], int)
