"""A record that kills the whole consumer is found after a bounded number of crashes, and costs nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sources.kafka.stage import LIMIT, running, until

from redrive.sources.kafka.offsets.start_note import StartNote, read_note

ROOT = Path(__file__).parents[4]


def start(stage, wanted, worker):
    words = [stage.bootstrap, stage.topic, stage.group, str(wanted), worker]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return subprocess.run(
        [sys.executable, "-m", "tests.sources.kafka.looping", *words], env=env, cwd=ROOT, timeout=LIMIT, check=False
    )


def crashes_until_all_is_done(stage, worker):
    """Start consumers until one ends by itself; return how many died of the poison among their records."""
    stage.create()
    values = [b"slow", *(b"%d" % n for n in range(20)), b"poison", *(b"%d" % n for n in range(20, 40))]
    stage.produce([{"value": value, "key": b"k%d" % at} for at, value in enumerate(values)])
    crashes = 0
    while start(stage, len(values), worker).returncode == -signal.SIGKILL:
        crashes += 1
        assert crashes <= 12
    assert stage.committed() == len(values)
    return crashes


@pytest.mark.slow
def test_a_record_that_kills_every_consumer_becomes_a_dead_letter_and_the_others_are_handled(stage):
    assert crashes_until_all_is_done(stage, "closure") >= 3
    [letter] = stage.dead_letters()
    assert letter.value() == b"poison"
    assert dict(letter.headers())["x-redrive-disposition"] == b"crash_loop"


@pytest.mark.slow
def test_a_suspect_kills_a_child_process_and_not_the_consumer_again(stage):
    assert crashes_until_all_is_done(stage, "findable") >= 3
    [letter] = stage.dead_letters()
    headers = dict(letter.headers())
    assert (letter.value(), headers["x-redrive-disposition"]) == (b"poison", b"worker_died")
    assert b"SIGKILL" in headers["x-error-reason"]


async def test_a_start_is_noted_before_anything_runs_and_a_clean_end_leaves_no_note(stage):
    stage.create()
    stage.produce([{"value": b"v"}])
    seen = []

    def worker(record):
        seen.append(stage.commit_of())

    async with running(stage.consumer(worker)):
        await until(lambda: stage.committed() == 1)
    assert read_note(seen[0][1])[0] == StartNote(1)
    await until(lambda: read_note(stage.commit_of()[1])[0] == StartNote())
    assert stage.commit_of() == (1, "")


@pytest.mark.parametrize("text", ["", None, "b", "bx.", "R123", "z1.", "b1"])
def test_what_is_no_note_is_left_alone(text):
    assert read_note(text) == (StartNote(), text or "")
