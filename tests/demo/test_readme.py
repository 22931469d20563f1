"""What the README shows is true: the example runs as printed, links and commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from redrive.cli.root import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# The first line of the file says what it shows; the README shows the code below it.
EXAMPLE = (ROOT / "examples" / "first_dead_letter.py").read_text(encoding="utf-8").partition('"""\n\n')[2]


def block(language: str) -> str:
    [found] = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return found


def test_the_example_is_printed_as_it_is():
    assert block("python") == EXAMPLE


def test_the_example_is_twenty_lines_of_code():
    assert sum(bool(line.strip()) for line in EXAMPLE.splitlines()) <= 20


def test_the_example_prints_what_the_readme_says_and_nothing_else(tmp_path):
    (tmp_path / "pasted.py").write_text(block("python"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "pasted.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.stdout, done.returncode) == (block("text"), 0), done.stderr
    assert "redrive.letter.died" in done.stderr


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_every_link_leads_somewhere(link):
    assert (ROOT / link).exists()


def test_every_command_is_listed():
    [row] = re.findall(r"^\| `ls`.*$", README, re.MULTILINE)
    assert set(re.findall(r"`([a-z]+)`", row)) == {*COMMANDS, "queues"}


def test_every_extra_is_in_the_table_of_extras():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    table = README.partition("| extra | for |")[2].partition("\n\n")[0]
    named = [line.split("|")[1] for line in table.strip().splitlines()[1:]]
    assert set(re.findall(r"`(\w+)`", " ".join(named))) == set(extras)
