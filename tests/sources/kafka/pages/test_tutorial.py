"""The Kafka tutorial, followed to the letter on a real broker."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.docs.pages import DOCS, Shown, blocks, console
from tests.sources.kafka.stage import LIMIT

import redrive

PAGE = DOCS / "tutorial" / "kafka.md"
[ORDERS] = [block for block in blocks(PAGE) if block.title == "orders.py"]
FIRST, FIXED = [block for block in blocks(PAGE) if block.title == "shop.py"]


class Reader:
    """Somebody who does what the page says."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.folder = folder
        self.env = os.environ | {
            "PYTHONPATH": str(Path(redrive.__file__).parents[1]),
            "KAFKA_BOOTSTRAP_SERVERS": servers,
        }

    def follow(self, shown: Shown) -> None:
        word, *rest = shown.command
        if word == "export":
            self.env |= dict(each.split("=", 1) for each in rest)
        elif word == "python":
            self._agrees(shown, self._run([sys.executable, *rest]))
        elif rest[:2] == ["kafka", "consume"]:
            self._consume(shown)
        elif word == "redrive":
            self._agrees(shown, self._run([sys.executable, "-m", "redrive.cli", *rest]))

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert done.returncode == 0, (shlex.join(command), done.stdout, done.stderr)
        return done.stdout

    def _consume(self, shown: Shown) -> None:
        """Consume until every line that the page promises is there, then press Ctrl+C."""
        expected = shown.output.splitlines()
        command = [sys.executable, "-m", "redrive.cli", *shown.command[1:]]
        with subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, text=True) as process:
            alarm = threading.Timer(LIMIT, process.kill)
            alarm.start()
            printed = []
            for line in process.stdout:
                printed.append(line.strip())
                if printed == expected:
                    process.send_signal(signal.SIGINT)
            alarm.cancel()
        assert process.returncode == 0
        assert printed == [*expected, "stopped"]

    def _agrees(self, shown: Shown, printed: str) -> None:
        for line in filter(None, shown.output.splitlines()):
            assert re.search(re.escape(line), printed), (line, printed)


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(broker, tmp_path):
    reader = Reader(tmp_path, broker.bootstrap)
    (tmp_path / "orders.py").write_text(ORDERS.code)
    (tmp_path / "shop.py").write_text(FIRST.code)
    for shown in console(PAGE):
        if "--to-offset" in shown.command:
            (tmp_path / "shop.py").write_text(FIXED.code)
        reader.follow(shown)
