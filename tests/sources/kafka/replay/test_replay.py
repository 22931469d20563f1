"""Dead letters at the desk: looked at, counted, replayed once, parked when they come back too often."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from confluent_kafka import Consumer
from tests.sources.kafka.stage import running, until
from typer.testing import CliRunner

from redrive import Reject, failpoints
from redrive.cli.root import app
from redrive.errors import SourceError
from redrive.sources.kafka.replay.filter import Filter
from redrive.sources.kafka.replay.replay import browse, replay

KINDS = [ValueError, KeyError, Reject]


@pytest.fixture
async def dead(stage):
    """Thirty dead letters of three kinds, in two partitions."""
    stage.create(partitions=2)
    stage.produce(
        [{"value": b"%d" % n, "key": b"k%d" % n, "partition": n % 2, "headers": [("own", b"h")]} for n in range(30)]
    )

    async def worker(record):
        raise KINDS[int(record.value) % 3]("no")

    async with running(stage.consumer(worker)):
        await until(lambda: sum(stage.committed(p) or 0 for p in (0, 1)) == 30)
    return stage


async def test_dead_letters_are_read_with_what_they_say_of_themselves(dead):
    letters = list(browse(dead.kafka(), dead.dlq, Filter()))
    assert {int(letter.value) for letter in letters} == set(range(30))
    assert {letter.home for letter in letters} == {dead.topic}
    assert {letter.disposition for letter in letters} == {"retries_exhausted", "terminal"}


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Filter(), 30),
        (Filter(exception="ValueError"), 10),
        (Filter(disposition="terminal"), 10),
        (Filter(key="k7"), 1),
        (Filter(partition=1), 15),
        (Filter(partition=0, first=2, last=4), 3),
        (Filter(header=("own", "h")), 30),
        (Filter(since=1 << 60), 0),
    ],
)
async def test_a_choice_picks_by_what_is_asked(dead, wanted, count):
    assert len(list(browse(dead.kafka(), dead.dlq, wanted))) == count


async def test_a_reader_asks_for_no_more_than_there_is_and_does_not_wait_for_it(dead, monkeypatch):
    asked = []

    class Client(Consumer):
        def consume(self, count, limit):
            asked.append(count)
            return super().consume(count, limit)

    monkeypatch.setattr("redrive.sources.kafka.replay.reader.Consumer", Client)
    assert len(list(browse(dead.kafka(), dead.dlq, Filter(partition=0, first=2, last=4)))) == 3
    assert asked[0] == max(asked) == 3


async def test_a_dry_run_counts_and_sends_nothing(dead):
    report = replay(dead.kafka(), dead.dlq, Filter(exception="KeyError"), dry_run=True)
    assert (report.seen, report.replayed, report.left) == (30, 10, 20)
    assert report.by_exception == {"KeyError": 10}
    assert len(dead.read()) == 30


async def test_replayed_letters_go_home_with_their_own_headers_and_once(dead):
    assert replay(dead.kafka(), dead.dlq, Filter(exception="KeyError")).replayed == 10
    again = replay(dead.kafka(), dead.dlq, Filter(exception="KeyError"))
    assert (again.seen, again.replayed) == (0, 0)
    home = dead.read()
    assert len(home) == 40
    [copy, *_] = [message for message in home if dict(message.headers()).get("x-redrive-replays")]
    names = [name for name, _ in copy.headers()]
    assert names == ["own", "x-redrive-history", "x-redrive-replays"]


async def test_what_comes_back_too_often_is_parked(dead):
    async def worker(record):
        raise Reject("still")

    for round_ in range(3):
        report = await asyncio.to_thread(replay, dead.kafka(), dead.dlq, Filter(key="k3"), max_replays=2)
        assert (report.replayed, report.too_often) == ((1, 0) if round_ < 2 else (0, 1))
        if round_ < 2:
            async with running(dead.consumer(worker)):
                await until(lambda round_=round_: len(dead.dead_letters()) == 31 + round_)
    last = [letter for letter in dead.dead_letters() if letter.key() == b"k3"][-1]
    history = msgspec.json.decode(dict(last.headers())["x-redrive-history"])
    assert [line["disposition"] for line in history] == ["terminal", "retries_exhausted"]


@pytest.mark.parametrize("transactional", [False, True])
def test_what_was_left_as_replayed_too_often_goes_home_once_more_is_allowed_and_nothing_else_twice(
    stage, transactional
):
    stage.create()
    stage.create(topic=stage.dlq)
    home = ("source-topic", stage.topic.encode())
    stage.produce(
        [{"value": b"%d" % n, "headers": [home, ("x-redrive-replays", b"%d" % n)]} for n in (0, 4, 1, 0, 2)],
        topic=stage.dlq,
    )

    def sent(most):
        before = len(stage.read())
        report = replay(stage.kafka(), stage.dlq, Filter(), max_replays=most, transactional=transactional)
        return [int(each.value()) for each in stage.read()[before:]], report.too_often

    assert sent(1) == ([0, 0], 3)
    assert sent(1) == ([], 0)
    assert sent(3) == ([1, 2], 1)
    assert sent(2) == ([], 0)
    assert sent(9) == ([4], 0)
    assert sent(9) == ([], 0)
    stage.produce([{"value": b"0", "headers": [home]}], topic=stage.dlq)
    assert sent(1) == ([0], 0)
    assert sent(9) == ([], 0)


async def test_a_letter_from_elsewhere_is_not_sent_where_it_may_not_go(dead):
    dead.produce(
        [{"value": b"x", "headers": [("source-topic", b"payments"), ("x-redrive-schema", b"1")]}], topic=dead.dlq
    )
    with pytest.raises(SourceError, match="may not write to"):
        replay(dead.kafka(), dead.dlq, Filter())


async def test_a_replay_goes_back_to_the_partition_that_a_letter_came_from(dead):
    replay(dead.kafka(), dead.dlq, Filter())
    sent_back = [message for message in dead.read() if dict(message.headers()).get("x-redrive-replays")]
    assert len(sent_back) == 30
    assert {message.partition() == int(message.value()) % 2 for message in sent_back} == {True}


async def test_a_transactional_replay_that_breaks_off_has_sent_nothing(dead, monkeypatch):
    monkeypatch.setitem(failpoints.ACTIVE, "kafka.replay_sent", ["raise", 1])
    with pytest.raises(failpoints.Injected):
        replay(dead.kafka(), dead.dlq, Filter(), transactional=True)
    assert replay(dead.kafka(), dead.dlq, Filter(), transactional=True).replayed == 30
    assert replay(dead.kafka(), dead.dlq, Filter(), transactional=True).seen == 0
    home = dead.read(**{"isolation.level": "read_committed"})
    assert len(home) == 60  # 30 at first, 30 sent back


async def test_the_command_line_lists_counts_shows_and_replays(dead):
    def run(*words):
        result = CliRunner().invoke(app, ["kafka", *words, "--servers", dead.bootstrap])
        assert result.exit_code == 0, result.output
        return result.stdout

    listed = msgspec.json.decode(run("dlq", "ls", dead.dlq, "--exception", "ValueError", "--json"))
    assert (len(listed["dead_letters"]), listed["more"]) == (10, False)
    stats = msgspec.json.decode(run("dlq", "stats", dead.dlq, "--json"))
    assert ({line["count"] for line in stats["counts"]}, stats["total"]) == ({10}, 30)
    shown = msgspec.json.decode(run("dlq", "peek", dead.dlq, "3", "--partition", "1", "--json"))
    assert shown["place"] == f"{dead.dlq}[1]@3"
    assert shown["key"] == f"k{shown['value']}"
    assert "10 would be replayed" in run("replay", dead.dlq, "--disposition", "terminal", "--dry-run")
    assert "10 replayed" in run("replay", dead.dlq, "--disposition", "terminal", "--yes")
    assert len(dead.read()) == 40
    assert "30 would be replayed" in run("replay", dead.dlq, "--dry-run", "--header", "own=h", "--since", "1h")
    assert "0 would be replayed" in run("replay", dead.dlq, "--dry-run", "--until", "2020-01-01")
    assert "10 replayed" in run("replay", dead.dlq, "--exception", "KeyError", "--transactional", "--yes")


PLAIN = [("x-error-reason", b"ValueError: no"), ("x-retry-attempt", b"3"), ("partition", b"1"), ("offset", b"7")]


@pytest.mark.parametrize(
    "foreign",
    [
        lambda topic: [*PLAIN, ("source-topic", topic.encode()), ("epoch", b"1")],
        lambda topic: [("kafka_dlt-original-topic", topic.encode()), ("kafka_dlt-original-partition", b"\0\0\0\1")],
    ],
    ids=["plain", "spring"],
)
async def test_dead_letters_that_others_wrote_go_home_with_their_own_headers(stage, foreign):
    stage.create(partitions=2)
    stage.create(topic=stage.dlq)
    headers = [("trace", b"t"), *foreign(stage.topic)]
    stage.produce([{"value": b"x", "key": b"k", "headers": headers}], topic=stage.dlq)
    [letter] = browse(stage.kafka(), stage.dlq, Filter())
    assert (letter.home, letter.home_partition) == (stage.topic, 1)
    assert (await asyncio.to_thread(replay, stage.kafka(), stage.dlq, Filter())).replayed == 1
    [home] = stage.read()
    assert (home.partition(), home.key(), home.value()) == (1, b"k", b"x")
    assert home.headers() == [("trace", b"t"), ("x-redrive-replays", b"1")]


async def test_a_dead_letter_that_names_no_topic_is_refused_with_the_way_out(stage):
    stage.create()
    stage.create(topic=stage.dlq)
    stage.produce([{"value": b"x"}], topic=stage.dlq)
    with pytest.raises(SourceError, match=r"does not say where it came from, .*; `redrive kafka collect`"):
        replay(stage.kafka(), stage.dlq, Filter())
