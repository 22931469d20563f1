"""What operators see on a terminal of 80 columns and 24 lines."""

from __future__ import annotations

import pytest
from tests.cli.screens import seen

from redrive.core.breaker import BreakerRules
from redrive.core.letter import Category, Draft, Failure, Status
from redrive.core.moves import Move
from redrive.engine.clock import new_id
from redrive.stores.contract import Want, WorkerBeat

KINDS = ("order.created", "invoice.reminder.sent")
ERROR = "'NoneType' object has no attribute 'upper', and the message goes on and on beyond every column"
RULE = "no rule knows it, and unknown is transient for handler"
POLICY = "exponential:first=0.1,cap=1,max_attempts=3,jitter=full"


@pytest.fixture
def shop(redrive):
    """Six letters, two of them dead after two tries each, one in flight, an open breaker, a paused queue, a worker."""

    async def work(mill):
        store = mill.store
        ids = [new_id() for _ in range(6)]
        drafts = [Draft(id=each, queue="default", kind=KINDS[n % 2], payload=b"{}") for n, each in enumerate(ids)]
        await store.put(drafts)
        for move in (Move(Status.PENDING, "backing off", failure=_failure(), policy=POLICY), _give_up()):
            claims = await store.claim([Want("default", KINDS, 4)], lease=60, worker="w")
            await store.settle([(claim, move) for claim in claims if claim.letter.id in ids[:2]])
        await store.report("payments", BreakerRules(failures=1, open_for=3_600), successes=0, failures=1)
        await store.pause("billing-and-invoices", paused=True, by="ana@ops.example", reason="incident 4711")
        beats = [f"a-host-with-a-long-name-{n}-123456-abcdef" for n in range(30)]
        for name in beats:
            await store.extend(WorkerBeat(name=name, kinds=KINDS, queues=("default",) * 2), [], lease=600)
        return ids

    return redrive.fill(work)


def _failure():
    told = {"error_type": "AttributeError", "message": ERROR, "category": Category.TRANSIENT, "rule": RULE}
    return Failure(**told, fingerprint="6e910b8acee9c1aa-v1", template=ERROR)


def _give_up():
    return Move(Status.FAILED, "exhausted", failure=_failure(), policy=POLICY)


def test_ls_has_one_line_a_letter_and_folds_no_word(redrive, shop):
    heading, _, *lines = seen(redrive.url, "ls").splitlines()

    assert heading.split() == ["id", "kind", "status", "tries", "error", "updated"]
    assert [line.split()[0] for line in lines] == [each[-8:] for each in reversed(shop)]
    assert all(len(line) <= 80 for line in lines)
    assert {line.split()[1] for line in lines} == set(KINDS)
    assert {line.split()[2] for line in lines} <= {"failed", "pending", "in_flight"}
    assert all("…" in line and "AttributeError" in line for line in lines[-2:])


def test_an_id_from_the_screen_can_be_given_back(redrive, shop):
    shown = seen(redrive.url, "ls", "-q", "status:failed").splitlines()[-1].split()[0]

    assert shop[0] in seen(redrive.url, "show", shown)
    assert redrive.json("replay", shown, "--yes")["acted"] == 1


def test_a_time_of_today_is_short_and_has_its_zone(redrive, shop):
    assert all(line.endswith("Z") and line[-4] == ":" for line in seen(redrive.url, "ls").splitlines()[2:])


def test_wide_shows_whole_ids_and_whole_errors(redrive, shop):
    shown = seen(redrive.url, "ls", "--wide").splitlines()

    assert all(any(each in line for line in shown) for each in shop)
    assert any(ERROR in line for line in shown)


def test_groups_have_one_line_each(redrive, shop):
    heading, _, *lines = seen(redrive.url, "groups").splitlines()

    assert heading.split() == ["group", "count", "verdict", "error", "title", "last", "seen"]
    assert len(lines) == 1
    assert len(lines[0]) <= 80
    assert lines[0].startswith("6e910b8a")


@pytest.mark.parametrize("lens", ["origin", "kind", "category", "error_type", "release", "tenant"])
def test_groups_by_a_lens_have_one_line_each_and_whole_commands(redrive, shop, lens):
    heading, _, *lines = seen(redrive.url, "groups", "--by", lens).splitlines()
    commands = [line for line in lines if line.startswith("redrive ls -q ")]

    assert heading.split() == [lens, "count", "groups", "title", "first", "seen", "last", "seen"]
    assert len(lines) == 2 * len(commands)
    assert all(len(line) <= 80 for line in lines[: len(commands)])
    assert "…" not in "".join(commands)


def test_stats_leave_out_what_is_zero(redrive, shop):
    shown = seen(redrive.url, "stats")

    assert "delivered" not in shown
    assert "purged" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "purged" in seen(redrive.url, "stats", "--wide")


def test_explain_is_readable(redrive, shop):
    shown = seen(redrive.url, "explain", shop[0])

    assert all(len(line) <= 80 for line in shown.splitlines())
    assert RULE in " ".join(shown.split())  # broken between words only
    assert [line.split()[0] for line in shown.splitlines()[-2:]] == ["1", "2"]


@pytest.mark.parametrize("command", [("queues",), ("audit",), ("show",), ("explain", "--what-if", "never")])
def test_every_other_table_fits(redrive, shop, command):
    asked = (*command, shop[0]) if command[0] in ("show", "explain") else command

    assert all(len(line) <= 80 for line in seen(redrive.url, *asked).splitlines())


def test_the_question_of_a_bulk_verb_stands_below_its_preview_on_one_screen(redrive, shop):
    shown = seen(redrive.url, "replay", "-q", "status:failed", "--canary", "1", answer="n\n")

    lines = shown.splitlines()
    assert "replay: 2 letters matching status:failed" in lines
    assert any(line.startswith("replay 1 letter? [y/N]") for line in lines)
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)


def test_top_fits_a_screen_and_has_what_needs_a_look_first(redrive, shop):
    lines = seen(redrive.url, "top", "--once").splitlines()

    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
    assert lines[0] == "breaker payments: open"
    assert lines.index("failures") < next(n for n, line in enumerate(lines) if "the books balance" in line)
    assert any(line.startswith("workers (") for line in lines)


def test_a_failed_letter_is_red_on_a_terminal_and_nowhere_else(redrive, shop):
    assert "\x1b[31mfailed" in seen(redrive.url, "ls", plain=False)
    assert "\x1b" not in redrive("ls").stdout


def test_no_color_is_respected(redrive, shop):
    shown = seen(redrive.url, "ls", plain=False, env={"NO_COLOR": "1"})

    assert "\x1b[31m" not in shown
    assert "failed" in shown


def test_the_audit_names_a_letter_as_the_list_does(redrive, shop):
    redrive("replay", shop[0], "--reason", "fixed")

    assert shop[0][-8:] in seen(redrive.url, "audit").splitlines()[2].split()
    assert shop[0] in redrive("audit", "--wide").stdout


def test_what_is_piped_is_never_cut(redrive, shop):
    assert ERROR in redrive("ls").stdout
