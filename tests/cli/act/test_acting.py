from __future__ import annotations

import subprocess
import sys

import pytest
from tests.cli.pipes import next_line

from redrive.desk.act import plan


def test_replay_by_id_sends_exactly_those(redrive, failures):
    [first, second, third], mails = failures

    done = redrive.json("replay", first, second, "--yes", "--reason", "fixed", "--by", "ana@ops")

    assert (done["verb"], done["acted"], done["plan"]) == ("replay", 2, None)
    assert redrive.statuses() == {
        first: "pending", second: "pending", third: "failed", mails[0]: "failed", mails[1]: "failed",
    }  # fmt: skip
    history = redrive.json("show", first)["failure_history"]
    assert [(one["replayed_by"], one["reason"]) for one in history] == [("ana@ops", "fixed")]


def test_replay_by_query_touches_nothing_outside_it(redrive, failures):
    orders, mails = failures

    done = redrive.json("replay", "-q", "kind:order.*", "--yes")

    assert (done["acted"], done["done"]) == (3, True)
    assert redrive.statuses() == dict.fromkeys(orders, "pending") | dict.fromkeys(mails, "failed")


def test_replay_by_group_is_a_query(redrive, failures):
    _, mails = failures

    redrive("replay", "--group", "f2", "--yes")

    assert [one for one, status in redrive.statuses().items() if status == "pending"] == mails[::-1]


@pytest.mark.parametrize("arguments", [(), ("-q", ""), ("-q", "  "), ("some-id", "-q", "kind:*")])
def test_without_one_clear_choice_of_letters_nothing_happens(redrive, failures, arguments):
    before = redrive.statuses()

    redrive("replay", *arguments, "--yes", code=2)

    assert redrive.statuses() == before


def test_a_bulk_verb_says_what_it_will_do_and_asks(redrive, failures):
    done = redrive("archive", "-q", "kind:order.*", answer="n\n", code=1)

    assert "archive: 3 letters matching kind:order.* status:failed" in done.output
    assert "order 0 is bad" in done.output
    assert set(redrive.statuses().values()) == {"failed"}

    redrive("archive", "-q", "kind:order.*", answer="y\n")
    assert list(redrive.statuses().values()).count("archived") == 3


def test_without_an_answer_nothing_happens(redrive, failures):
    redrive("replay", "-q", "kind:*", answer="", code=1)

    assert set(redrive.statuses().values()) == {"failed"}


def test_a_canary_is_as_small_as_asked(redrive, failures):
    assert redrive.json("replay", "-q", "status:failed", "--canary", "2", "--yes")["acted"] == 2
    assert list(redrive.statuses().values()).count("pending") == 2


@pytest.mark.parametrize("verb", ["replay", "archive"])
def test_a_bulk_verb_ends_with_the_line_to_look_at_its_letters(redrive, failures, verb):
    orders, _ = failures

    *_, last = redrive(verb, "-q", "kind:order.*", "--yes").stdout.splitlines()

    look = last.partition("redrive ls -q ")[2]
    assert look.startswith("plan:")
    assert {one["id"] for one in redrive.json("ls", "-q", look)["letters"]} == set(orders)
    assert redrive.json("show", orders[0])["plan"] == look.removeprefix("plan:")
    assert look.removeprefix("plan:") in redrive("show", orders[0]).stdout


def test_where_nothing_was_done_or_nothing_is_left_there_is_nothing_to_look_at(redrive, archived):
    assert "ls -q" not in redrive("replay", "-q", "kind:none", "--yes").stdout
    assert "ls -q" not in redrive("purge", "-q", "kind:*", "--yes", "--confirm", "5").stdout


def test_waiting_for_letters_that_nobody_runs_ends_in_time_and_says_so(redrive, failures):
    done = redrive("replay", "-q", "kind:order.*", "--canary", "2", "--wait-seconds", "0", "--yes", code=1)

    assert "2 still waiting" in done.stdout
    assert "go on with the rest" not in done.stdout
    look = next(line for line in done.stdout.splitlines() if "still wait:" in line).partition("-q ")[2]
    assert len(redrive.json("ls", "-q", look.strip("'"))["letters"]) == 2


def test_waiting_for_nothing_is_no_error(redrive, failures):
    assert redrive.json("replay", "-q", "kind:none", "--wait", "--yes")["outcome"] is None


def test_letters_named_by_id_are_not_waited_for(redrive, failures):
    assert "-q id:ID" in redrive("replay", failures[0][0], "--wait", code=2).stderr
    assert set(redrive.statuses().values()) == {"failed"}


def test_nothing_to_do_is_no_error(redrive, failures):
    assert "nothing to do" in redrive("replay", "-q", "kind:none", "--yes").stdout


def test_a_letter_in_the_wrong_status_is_refused_with_the_reason(redrive, failures):
    [first, *_], _ = failures

    assert "it is failed" in redrive("restore", first, code=1).stderr


def test_a_killed_plan_is_resumed_and_each_letter_goes_once(redrive):
    async def work(mill):
        ids = [await mill.failed() for _ in range(10)]
        started = await plan.start(mill.store, "replay", "status:failed", by="ana")
        await mill.store.step(started.id, limit=4)
        return started.id, ids

    plan_id, ids = redrive.fill(work)

    done = redrive.json("replay", "--resume", plan_id)

    assert (done["plan"], done["acted"], done["done"]) == (plan_id, 10, True)
    assert [redrive.json("show", one)["letter"]["cycles"] for one in ids] == [1] * 10
    assert redrive.json("replay", "--resume", plan_id)["acted"] == 10


def test_a_plan_is_resumed_only_by_its_own_verb(redrive):
    async def work(mill):
        await mill.failed()
        return (await plan.start(mill.store, "archive", "status:failed", by="ana")).id

    plan_id = redrive.fill(work)

    assert f"redrive plan run {plan_id}" in redrive("replay", "--resume", plan_id, code=1).stderr
    assert set(redrive.statuses().values()) == {"failed"}


def test_an_unknown_plan_is_refused(redrive):
    assert "no plan has the id 'nope'" in redrive("replay", "--resume", "nope", code=1).stderr


def test_the_plan_to_resume_is_named_before_anything_is_done(redrive, failures):
    assert "go on with: redrive plan run " in redrive("replay", "-q", "kind:*", "--yes").stderr


@pytest.fixture
def archived(redrive, failures):
    redrive("archive", "-q", "status:failed", "--yes")


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [(("--yes",), None), (("--yes", "--confirm", "4"), None), ((), "4\n"), ((), ""), (("--confirm", "6"), None)],
)
def test_a_purge_without_the_right_number_purges_nothing(redrive, archived, arguments, answer):
    redrive("purge", "-q", "kind:*", *arguments, answer=answer, code=1)

    assert redrive.json("stats")["books"]["archived"] == 5


@pytest.mark.parametrize(("arguments", "answer"), [(("--yes", "--confirm", "5"), None), ((), "5\n")])
def test_a_purge_with_the_right_number_keeps_the_books_balanced(redrive, archived, arguments, answer):
    redrive("purge", "-q", "kind:*", *arguments, answer=answer)

    found = redrive.json("stats")
    assert (found["books"]["archived"], found["books"]["purged"], found["balanced"]) == (0, 5, True)


def test_cancel_and_restore_bring_a_letter_there_and_back(redrive):
    letter_id = redrive.json("enqueue", "order.created", "{}")["id"]

    redrive("cancel", letter_id)
    assert redrive.statuses() == {letter_id: "archived"}
    redrive("restore", letter_id)
    assert redrive.statuses() == {letter_id: "pending"}


def test_every_act_is_in_the_audit_log(redrive, failures):
    redrive("archive", "-q", "kind:mail.*", "--yes", "--by", "ana@ops", "--reason", "spam")
    redrive("queues", "pause", "default", "--by", "ben", "--reason", "bank is down")

    entries = redrive.json("audit")["entries"]

    assert [(one["verb"], one["by"], one["reason"]) for one in entries if one["count"]][:2] == [
        ("pause", "ben", "bank is down"),
        ("archive", "ana@ops", "spam"),
    ]
    assert "bank is down" in redrive("audit").stdout


def test_queues_are_paused_resumed_and_listed(redrive, failures):
    redrive("queues", "pause", "default", "--reason", "bank is down", "--by", "ana")
    [paused] = redrive.json("queues")["queues"]
    redrive("queues", "resume", "default")
    [open_again] = redrive.json("queues", "list")["queues"]

    assert (paused["paused"], paused["paused_by"], paused["reason"]) == (True, "ana", "bank is down")
    assert open_again["paused"] is False
    assert "default" in redrive("queues").stdout


@pytest.mark.slow
def test_a_replay_killed_in_the_middle_sends_each_letter_once(redrive):
    """The process is killed for real, while it rests between two pages."""

    async def work(mill):
        return [await mill.failed() for _ in range(40)]

    redrive.fill(work)
    command = [sys.executable, "-m", "redrive.cli", "--url", redrive.url, "replay", "-q", "status:failed", "--yes"]
    with subprocess.Popen(
        [*command, "--rate", "10"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0
    ) as run:
        named = next_line(run.stderr)
        redrive.until(lambda books: books["pending"] > 0)
        run.kill()
    plan_id = named.split()[-1]
    assert redrive.json("stats")["books"]["failed"] > 0

    done = redrive.json("replay", "--resume", plan_id)

    assert (done["acted"], done["done"]) == (40, True)
    assert {one["cycles"] for one in redrive.json("ls", "-n", "100")["letters"]} == {1}
