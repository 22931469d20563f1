"""A reader runs an example as its first lines say."""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import redrive

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LIMIT = 300.0  # seconds until a command is taken to hang, on a machine that does much else
PROGRAMS = {"python": [], "redrive": ["-m", "redrive.cli"], "pytest": ["-m", "pytest"], "uvicorn": ["-m", "uvicorn"]}


class Reader:
    """Runs commands in a copy of the examples."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV", "REDRIVE"))}
        self.env = kept | {"PYTHONPATH": str(Path(redrive.__file__).parents[1])}

    def enter(self, folder: str) -> None:
        """Go on in that folder."""
        self.folder /= folder

    def run(self, line: str, *, code: int = 0) -> str:
        """Run a line and return what it printed."""
        command, env = self._read(line)
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert done.returncode == code, (line, done.returncode, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def run_until(self, line: str, expected: set[str], *, farewell: str | None = "stopped") -> None:
        """Run a line until it has printed what is expected, in any order, and press Ctrl+C; then it says *farewell*."""
        printed: list[str] = []
        with self.started(line, stdout=subprocess.PIPE) as process:
            for text in process.stdout:
                printed.append(text.strip())
                if set(printed) == expected:
                    process.send_signal(signal.SIGINT)
        assert process.returncode == 0
        assert sorted(printed[: len(expected)]) == sorted(expected)
        assert printed[len(expected) :] == ([farewell] if farewell else [])

    @contextmanager
    def started(self, line: str, **pipes: int) -> Iterator[subprocess.Popen[str]]:
        """Run a line meanwhile; kill it if it takes too long."""
        command, env = self._read(line)
        with subprocess.Popen(command, cwd=self.folder, env=env, text=True, **pipes) as process:
            alarm = threading.Timer(LIMIT, process.kill)
            alarm.start()
            try:
                yield process
            finally:
                alarm.cancel()
                if process.poll() is None:
                    process.terminate()

    def _read(self, line: str) -> tuple[list[str], dict[str, str]]:
        words = shlex.split(line)
        given = []
        while "=" in words[0]:
            given.append(words.pop(0).split("=", 1))
        return [sys.executable, *PROGRAMS[words[0]], *words[1:]], self.env | dict(given)


def first_lines(path: str) -> str:
    """Return what an example says of itself."""
    return ast.get_docstring(ast.parse((EXAMPLES / path).read_text(encoding="utf-8"))) or ""


def shown(path: str) -> list[str]:
    """Return the commands that the first lines of an example show."""
    return re.findall(r"^ +\$ (.*)$", first_lines(path), re.MULTILINE)
