"""The tutorial, followed to the letter."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import DOCS, Shown, blocks, console
from typer.testing import CliRunner

import redrive
from redrive import cli

PAGE = DOCS / "tutorial" / "first-dead-letter.md"
FIRST, FIXED = [block for block in blocks(PAGE) if block.title == "shop.py"]
[SETTINGS] = [block for block in blocks(PAGE) if block.title == "redrive.toml"]


class Reader:
    """Somebody who does what the page says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = os.environ | {"PYTHONPATH": str(Path(redrive.__file__).parents[1])}

    def run(self, *command: str) -> str:
        # What imports the reader's code gets a process of its own; the rest is quicker without.
        done = self._apart(command) if command[0] in {"check", "worker"} else self._here(command)
        assert done[0] == 0, (command, done)
        return done[1]

    def _apart(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        arguments = [sys.executable, "-m", "redrive.cli", *command]
        done = subprocess.run(
            arguments, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=300, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def _here(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        done = CliRunner().invoke(cli.app, command)
        return done.exit_code, done.stdout, done.stderr

    def follow(self, shown: Shown) -> None:
        words = [
            {"ID": self.an_id, "GROUP": self.a_group}.get(word, lambda word=word: word)() for word in shown.command
        ]
        printed = self.run(*words[1:])
        for line in filter(None, shown.output.splitlines()):
            assert re.search(re.escape(line).replace("…", ".*"), printed), (line, printed)

    def an_id(self) -> str:
        return json.loads(self.run("ls", "-q", "status:failed", "--json"))["letters"][-1]["id"]

    def a_group(self) -> str:
        return json.loads(self.run("groups", "--json"))["groups"][0]["group"][:4]


@pytest.mark.slow
def test_the_tutorial_does_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path)
    (tmp_path / "shop.py").write_text(FIRST.code)
    (tmp_path / "redrive.toml").write_text(SETTINGS.code)
    for shown in console(PAGE):
        if "replay" in shown.command:
            (tmp_path / "shop.py").write_text(FIXED.code)
        if shown.command[0] == "redrive":
            reader.follow(shown)
    books = json.loads(reader.run("stats", "--json"))["books"]
    assert (books["enqueued"], books["delivered"], books["failed"]) == (3, 3, 0)


def test_the_group_that_the_page_shows_is_the_one_that_readers_see():
    assert "<text> object has no attribute <text>" in PAGE.read_text()
