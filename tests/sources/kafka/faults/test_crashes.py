"""kill -9 at every step between poll and commit: everything ends handled or dead-lettered, in order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.sources.kafka.stage import LIMIT

ROOT = Path(__file__).parents[4]
RECORDS = 300
STEPS = [
    "kafka.after_poll",
    "kafka.after_dispatch",
    "kafka.before_dlq",
    "kafka.after_dlq",
    "kafka.before_commit",
    "kafka.after_commit",
    "kafka.before_last_commit",
]
pytestmark = pytest.mark.slow


class Runs:
    """Starts consumers one after the other on the same topic and group, and keeps the book of what they handled."""

    def __init__(self, stage, folder: Path, records: int = RECORDS) -> None:
        self.stage, self.book, self.records = stage, folder / "book", records
        stage.create(partitions=2)
        stage.produce([{"value": b"%d" % n, "key": b"k%d" % (n % 7)} for n in range(records)])

    def start(self, failpoints: str = "") -> subprocess.Popen[bytes]:
        stage = self.stage
        words = [stage.bootstrap, stage.topic, stage.group, str(self.book), str(self.records)]
        env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "REDRIVE_FAILPOINTS": failpoints}
        return subprocess.Popen([sys.executable, "-m", "tests.sources.kafka.crashing", *words], env=env, cwd=ROOT)

    def finish(self) -> None:
        assert self.start().wait(LIMIT) == 0

    def check(self) -> tuple[int, int]:
        """Check that nothing is missing and order held; return how many ran twice and how many died twice."""
        lines = [line.split() for line in self.book.read_bytes().splitlines()]
        handled = [int(value) for _, value in lines]
        dead = [int(letter.value()) for letter in self.stage.dead_letters()]
        assert set(handled) | set(dead) == set(range(self.records))
        assert set(dead) == {n for n in range(self.records) if n % 10 == 3}
        for key in {key for key, _ in lines}:
            first_runs = list(dict.fromkeys(int(value) for each, value in lines if each == key))
            assert first_runs == sorted(first_runs)
        assert sum(self.stage.committed(p) or 0 for p in (0, 1)) == self.records
        return len(handled) - len(set(handled)), len(dead) - len(set(dead))


@pytest.mark.parametrize("step", STEPS)
def test_a_consumer_killed_at_any_step_loses_nothing(stage, tmp_path, step):
    runs = Runs(stage, tmp_path)
    assert runs.start(f"{step}=kill@1").wait(LIMIT) in {-signal.SIGKILL, 0}
    if step == "kafka.after_dlq":
        assert runs.start(f"{step}=kill@9").wait(LIMIT) == -signal.SIGKILL
    runs.finish()
    _, dead_twice = runs.check()
    if step in {"kafka.before_dlq", "kafka.after_poll", "kafka.after_dispatch"}:
        assert dead_twice == 0


def test_a_consumer_killed_between_a_dead_letter_and_its_commit_writes_it_twice_under_one_name(stage, tmp_path):
    runs = Runs(stage, tmp_path)
    assert runs.start("kafka.after_dlq=kill@1").wait(LIMIT) == -signal.SIGKILL
    runs.finish()
    runs.check()
    names = Counter(dict(letter.headers())["x-redrive-id"] for letter in stage.dead_letters())
    assert len(names) == RECORDS // 10
    assert max(names.values()) <= 2  # one for each life


def test_a_consumer_that_stood_still_too_long_commits_nothing_over_its_successor(stage, tmp_path):
    runs = Runs(stage, tmp_path)
    first = runs.start("kafka.after_dispatch=stop@2")
    os.waitid(os.P_PID, first.pid, os.WSTOPPED)
    try:
        runs.finish()
        before = [stage.committed(p) for p in (0, 1)]
        first.send_signal(signal.SIGCONT)
        assert first.wait(LIMIT) == 0  # it hears that its partitions are lost, joins again, and finds all done
        assert [stage.committed(p) for p in (0, 1)] == before
    finally:
        first.kill()
        first.wait()
    runs.check()


def test_random_kills_lose_nothing(stage, tmp_path):
    runs, chance = Runs(stage, tmp_path, records=3000), random.Random(5)
    for _ in range(5):
        step = chance.choice(STEPS[:6])
        runs.start(f"{step}=kill@{chance.randint(1, 30)}").wait(LIMIT)
    runs.finish()
    twice, dead_twice = runs.check()
    print(f"of 3000 records {twice} ran twice and {dead_twice} were dead-lettered twice")
