"""The demo as its first user meets it, and its judgement of its own end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from redrive.demo import letters, receipt
from redrive.demo.screen import Screen
from redrive.demo.story import Outcome, _close, _exit_code, main
from redrive.demo.worker import LOG, WorkerFailed, worker

MET = {"healed": letters.FLAKY, "held": 30, "rescued": 30, "crashed": 1, "neighbours": 99}
TIMES = Counter({str(number): 1 for number in range(receipt.EXPECTED["delivered"])})


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Return a whole run; once, for it takes ten seconds."""
    return demo(tmp_path_factory.mktemp("demo"))


@pytest.mark.slow
def test_the_demo_ends_well_and_its_books_balance(done):
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗" not in done.stdout
    assert "3 things to fix" in done.stdout
    assert "nothing lost, nothing stuck, the books balance" in done.stdout
    assert "\x1b" not in done.stdout  # a file gets plain lines


@pytest.mark.slow
def test_the_file_that_stays_answers_the_commands_that_are_offered(done):
    offered = [line.strip() for line in done.stdout.partition("Your turn")[2].splitlines()[2:]]
    assert len(offered) == 4

    script = ["sh", "-c", " && ".join(offered)]
    answer = subprocess.run(script, env=environment(), capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stderr
    assert "the books balance" in answer.stdout
    assert "earlier cycles (1)" in answer.stdout
    assert "canary of release 1.1" in answer.stdout


def demo(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "redrive.cli", "demo"],
        cwd=folder,
        env=environment() | {"REDRIVE_QUEUES": "of-somebody-else", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(receipt.__file__).parents[2]), "PYTHONIOENCODING": "utf-8"}


def test_settings_that_make_no_sense_end_it_with_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("REDRIVE_CONCURRENCY", "none of them")
    assert main() == 1
    assert "REDRIVE_CONCURRENCY is 'none of them'" in " ".join(capsys.readouterr().out.split())


async def test_a_worker_that_cannot_start_is_not_taken_for_one_that_is_done(tmp_path):
    (tmp_path / "redrive.toml").write_text("this is no toml")
    async with worker(tmp_path, "1.0") as started:
        await started._process.wait()
        with pytest.raises(WorkerFailed, match=LOG):
            _ = started.done


def test_an_end_as_it_must_be_has_no_problems():
    assert receipt.problems(receipt.EXPECTED, MET, TIMES) == []


@pytest.mark.parametrize("state", receipt.EXPECTED)
def test_a_wrong_total_is_a_problem(state):
    wrong = receipt.EXPECTED | {state: receipt.EXPECTED[state] + 1}
    problems = receipt.problems(wrong, MET, TIMES)
    assert f"{state} is {wrong[state]}, not {receipt.EXPECTED[state]}" in problems
    assert "the books do not balance" in problems


@pytest.mark.parametrize("met", ["healed", "crashed", "rescued", "neighbours"])
def test_trouble_that_was_not_overcome_is_a_problem(met):
    assert len(receipt.problems(receipt.EXPECTED, MET | {met: MET[met] - 1}, TIMES)) == 1


def test_a_letter_that_no_handler_saw_is_a_problem():
    seen = dict(list(TIMES.items())[1:])
    assert receipt.problems(receipt.EXPECTED, MET, seen) == ["the handlers saw 1998 letters, and 1999 are delivered"]


def test_a_problem_ends_it_with_1(capsys):
    _close(Screen(), ["delivered is 1998, not 1999"], 10.0)
    assert "✗ delivered is 1998, not 1999" in capsys.readouterr().out
    wrong = Outcome(ok=False, problems=["delivered is 1998, not 1999"], books={}, seconds=1.0, url="")
    assert _exit_code(wrong, as_json=False) == 1


def test_the_outcome_is_printed_as_json_if_asked(capsys):
    right = Outcome(ok=True, problems=[], books={"enqueued": 1}, seconds=1.0, url="sqlite:///x")
    assert _exit_code(right, as_json=True) == 0
    assert capsys.readouterr().out == (
        '{"ok":true,"problems":[],"books":{"enqueued":1},"seconds":1.0,"url":"sqlite:///x"}\n'
    )


def test_no_problem_ends_it_with_0(capsys):
    _close(Screen(), [], 10.0)
    assert "✓ nothing lost" in capsys.readouterr().out


def test_progress_in_a_file_is_one_line_a_quarter(capsys):
    books = dict.fromkeys(receipt.EXPECTED, 0)
    with Screen().progress(100) as show:
        for delivered in (0, 10, 26, 30, 49, 80, 99, 100):
            show(books | {"delivered": delivered})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["26", "80", "100"]
