from __future__ import annotations

import asyncio
import contextlib
import json
import shlex

import apsw
import pytest
from tests.cli.test_plain import HOSTILE
from tests.desk.conftest import failure
from typer.testing import CliRunner

from redrive.cli import app
from redrive.core.letter import BYTES, Status
from redrive.core.moves import Move
from redrive.stores.contract import WorkerBeat

LETTER_KEYS = [
    "id", "queue", "kind", "status", "priority", "attempts", "losses", "cycles", "category", "error_type", "last_error",
    "group", "why", "key", "idempotency_key", "due_at", "first_failed_at", "failed_at", "created_at", "updated_at",
]  # fmt: skip


def test_ls_lists_what_matches(redrive, failures):
    orders, _ = failures

    listed = redrive.json("ls", "-q", "kind:order.*")

    assert [one["id"] for one in listed["letters"]] == orders[::-1]
    assert list(listed["letters"][0]) == LETTER_KEYS
    assert "order.created" in redrive("ls").stdout


def test_ls_goes_on_from_its_cursor(redrive, failures):
    first = redrive.json("ls", "-n", "3")
    second = redrive.json("ls", "-n", "3", "--cursor", first["cursor"])

    assert len({one["id"] for page in (first, second) for one in page["letters"]}) == 5
    assert second["cursor"] is None
    assert f"--cursor {first['cursor']}" in redrive("ls", "-n", "3").stdout


def test_a_query_that_cannot_be_read_is_one_clear_line(redrive):
    done = redrive("ls", "-q", "colour:red", code=1)

    assert done.stderr.startswith("redrive: ")
    assert "Traceback" not in done.output


def test_show_has_payload_history_and_tries(redrive, failures):
    [first, *_], _ = failures

    shown = redrive.json("show", first)

    assert (shown["payload"], shown["payload_encoding"]) == ({"order": 17}, "json")
    assert shown["letter"]["last_error"] == "order 0 is bad"
    assert '"order": 17' in redrive("show", first).stdout


def test_show_of_an_unknown_letter_is_refused(redrive):
    assert "no letter has the id 'nope'" in redrive("show", "nope", code=1).stderr


def test_groups_have_counts_and_verdicts(redrive, failures):
    found = redrive.json("groups")["groups"]

    assert [(one["group"], one["count"]) for one in found] == [("f1", 3), ("f2", 2)]
    assert {"verdict", "explanation", "first_seen_at", "kinds", "title"} <= set(found[0])
    assert redrive.json("groups", "-q", "kind:mail.*")["groups"][0]["group"] == "f2"
    assert "f1" in redrive("groups").stdout


@pytest.fixture
def places(redrive):
    """Three dead letters of one topic, one of another, and one that came from nowhere."""
    origins = [*(f"kafka:orders/3@{n}" for n in range(3)), "kafka:orders-eu/0@1", None]

    async def work(mill):
        told = [failure(f"no {n}", fingerprint=f"f{n}") for n in range(5)]
        return [await mill.pending(origin=origin, failure=each) for origin, each in zip(origins, told, strict=True)]

    return redrive.fill(work)


def test_groups_by_origin_name_the_place_and_the_command_that_lists_its_letters(redrive, places):
    asked = redrive.json("groups", "--by", "origin")
    shown = redrive("groups", "--by", "origin").stdout

    assert asked["by"] == "origin"
    assert [(one["value"], one["count"], one["fingerprints"]) for one in asked["groups"]] == [
        ("kafka:orders", 3, 3), (None, 1, 1), ("kafka:orders-eu", 1, 1)
    ]  # fmt: skip
    assert [line.split()[0] for line in shown.splitlines()[2:5]] == ["kafka:orders", "-", "kafka:orders-eu"]
    commands = [shlex.split(line)[1:] for line in shown.splitlines() if line.startswith("redrive ")]
    assert [len(redrive.json(*command)["letters"]) for command in commands] == [3, 1, 1]
    assert {one["id"] for one in redrive.json(*commands[0])["letters"]} == set(places[:3])


def test_groups_by_a_lens_keep_to_the_query_and_the_limit(redrive, places):
    assert len(redrive.json("groups", "--by", "kind", "-q", "origin:kafka:*")["groups"]) == 1
    assert len(redrive.json("groups", "--by", "origin", "-n", "1")["groups"]) == 1
    assert "no failed letters match" in redrive("groups", "--by", "tenant", "-q", "kind:none").stdout
    assert redrive.json("groups", "--by", "fingerprint") == redrive.json("groups")


def test_an_unknown_lens_is_one_clear_line(redrive):
    assert "redrive: cannot group by 'colour'" in redrive("groups", "--by", "colour", code=1).stderr


def test_stats_have_balanced_books(redrive, failures):
    found = redrive.json("stats")

    assert found["books"] == {
        "enqueued": 5, "pending": 0, "in_flight": 0, "delivered": 0, "failed": 5, "archived": 0, "purged": 0,
    }  # fmt: skip
    assert found["balanced"] is True
    assert "the books balance" in redrive("stats").stdout


def test_stats_name_letters_that_were_replayed_more_than_five_times(redrive):
    async def replay_often(mill):
        often = await mill.failed()
        for _ in range(6):
            await mill.store.act("replay", [often], by="ana", reason="again")
            await mill.settle("order.created", Move(Status.FAILED, "exhausted", failure=failure()))
        await mill.failed()

    redrive.fill(replay_often)

    assert redrive.json("stats")["histories"] == {"largest": 6, "long": 1}
    assert "replayed more than 5 times: 1 letter, at most 6: redrive ls -q 'cycles:>5'" in redrive("stats").stdout
    assert len(redrive.json("ls", "-q", "cycles:>5")["letters"]) == 1


def test_stats_and_top_name_the_workers_that_live_and_no_others(redrive):
    async def look(mill):
        for name in ("stays", "ends"):
            await mill.store.extend(WorkerBeat(name=name, kinds=("order.created",)), [], lease=60)
        await mill.store.leave("ends")
        return [await asyncio.to_thread(redrive, *asked) for asked in (("stats",), ("top", "--once"))]

    for shown in redrive.fill(look):
        assert "stays" in shown.stdout
        assert "ends" not in shown.stdout


def test_top_once_prints_one_frame_and_ends(redrive, failures):
    assert "books" in redrive("top", "--once").stdout
    assert redrive.json("top", "--once")["books"]["failed"] == 5


def test_explain_tells_rule_policy_and_waits(redrive, failures):
    [first, *_], _ = failures

    told = redrive.json("explain", first)

    assert (told["status"], told["why"]) == ("failed", "exhausted")
    assert told["tries"][0]["rule"] == "unknown errors are transient"
    assert "unknown errors are transient" in redrive("explain", first).stdout


def test_what_if_shows_another_policys_schedule(redrive, failures):
    [first, *_], _ = failures

    answer = redrive.json("explain", first, "--what-if", "exponential:max_attempts=8")

    assert len(answer["tries"]) == 8
    assert (
        "failed (exhausted) after 8 tries" in redrive("explain", first, "--what-if", "constant:max_attempts=8").stdout
    )


def test_a_policy_that_makes_no_sense_is_refused(redrive, failures):
    assert "cannot read the retry policy" in redrive("explain", "x", "--what-if", "sometimes", code=1).stderr


@pytest.mark.parametrize("command", [("ls",), ("groups",), ("stats",), ("top", "--once"), ("audit",), ("queues",)])
def test_hostile_text_reaches_no_terminal(redrive, command):
    text = HOSTILE.replace("\ud800", "").replace("\x00", "")

    async def work(mill):
        return await mill.failed(f"kind{text}", error=f"[bold red]{text}[/]", error_type=text, fingerprint="f1")

    letter_id = redrive.fill(work)
    redrive("queues", "pause", "default", "--reason", text, "--by", text)

    for arguments in (command, ("show", letter_id), ("explain", letter_id)):
        for output in (redrive(*arguments).output, redrive(*arguments, "--json").output):
            assert all(char.isprintable() or char == "\n" for char in output)


def test_a_name_with_a_line_break_cannot_forge_a_line(redrive):
    redrive.fill(lambda mill: mill.failed("order\nforged line"))

    for command in (("ls",), ("groups",), ("stats",), ("top", "--once")):
        assert not any(line.strip().startswith("forged line") for line in redrive(*command).output.splitlines())


def test_text_that_looks_like_markup_is_printed_as_it_is(redrive):
    redrive.fill(lambda mill: mill.failed(error="[bold]not markup[/bold] :smile:"))

    assert "[bold]not markup[/bold] :smile:" in redrive("ls").stdout


@pytest.mark.parametrize("payload", [b"\x00\xff\x1b[31m", "\u202eüber\x1b".encode(), b"[" * 100_000 + b"]" * 100_000])
def test_a_hostile_payload_is_shown_harmlessly(redrive, payload):
    letter_id = redrive.fill(lambda mill: mill.pending(payload=payload, content_type=BYTES))

    output = redrive("show", letter_id).output

    assert all(char.isprintable() or char == "\n" for char in output)
    assert redrive.json("show", letter_id)["payload_encoding"] == "base64"


def test_a_missing_database_never_looks_like_an_empty_one(redrive, tmp_path):
    redrive.path = tmp_path / "typo.db"

    for command in ("ls", "stats", "groups"):
        assert "there is no such file" in redrive(command, code=1).stderr
    assert not redrive.path.exists()


def test_a_file_that_is_no_database_is_one_clear_line(redrive, tmp_path):
    redrive.path = tmp_path / "letter.txt"
    redrive.path.write_text("Dear operator, " * 1000)

    done = redrive("stats", code=1)

    assert "letter.txt" in done.stderr
    assert "Traceback" not in done.output


def test_a_memory_store_is_refused_on_the_command_line(redrive):
    done = CliRunner().invoke(app, ["--url", "memory://", "stats"])

    assert (done.exit_code, "ends with its process" in done.stderr) == (1, True)


def test_json_keeps_big_numbers(redrive):
    letter_id = redrive.fill(lambda mill: mill.pending(payload=b'{"n":123456789012345678901234567890}'))

    assert json.loads(redrive("show", letter_id, "--json").stdout)["payload"]["n"] == 123456789012345678901234567890


TRACE = 'Traceback (most recent call):\n  File "shop.py", line 42, in shop:ship\n    1 / 0\nZeroDivisionError: \x1b'


def test_a_traceback_is_shown_and_cannot_act_on_the_terminal(redrive):
    letter_id = redrive.fill(lambda mill: mill.failed(traceback=TRACE, place="shop:ship:42"))

    for command in (("show", letter_id), ("explain", letter_id)):
        shown = redrive(*command).stdout
        assert '  File "shop.py", line 42, in shop:ship\n    1 / 0\n' in shown
        assert "\x1b" not in shown
        assert redrive.json(*command)["traceback"] == TRACE
    assert redrive.json("show", letter_id)["place"] == "shop:ship:42"
    assert "shop:ship:42" in redrive("groups").stdout
    assert redrive.json("groups")["groups"][0]["place"] == "shop:ship:42"


def test_a_letter_that_is_due_after_all_dates_is_shown_like_any_other(redrive):
    letter_id = redrive.fill(lambda mill: mill.pending())
    with contextlib.closing(apsw.Connection(str(redrive.path))) as kept:
        kept.execute("UPDATE letters SET due_us = 1790000000000000000")

    assert redrive.json("ls")["letters"][0]["due_at"].startswith("9999-12-31")
    for command in (("ls",), ("show", letter_id), ("explain", letter_id), ("stats",), ("top", "--once")):
        redrive(*command)
    redrive("cancel", "-q", "status:pending", "--yes", "--reason", "a slip")
    assert redrive.statuses() == {letter_id: "archived"}
