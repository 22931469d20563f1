"""What the README shows is true: the example runs as printed, links and commands exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from redrive.cli.root import COMMANDS, app

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
    groups = {group.name for group in app.registered_groups}
    assert set(re.findall(r"`([a-z]+)`", row)) == {*COMMANDS, *groups}


def test_every_extra_is_in_the_table_of_extras():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    table = README.partition("| extra | for |")[2].partition("\n\n")[0]
    named = [line.split("|")[1] for line in table.strip().splitlines()[1:]]
    assert set(re.findall(r"`(\w+)`", " ".join(named))) == set(extras)


FIFTY_FAIL = """
import asyncio
from redrive.demo.shop import app

async def main():
    async with app:
        parcels = [{"number": n, "grams": 0 if n < 50 else 500} for n in range(200)]
        await app.enqueue_many([app.draft("parcel.ship", parcel, queue="parcels") for parcel in parcels])
        await app.run(until_idle=True, signals=False)

asyncio.run(main())
"""


def in_folder(folder: Path, *command: str) -> str:
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "REDRIVE_URL": "sqlite:///letters.db", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=300, check=True,
    )  # fmt: skip
    return done.stdout


def as_pattern(line: str) -> str:
    """Return *line* with ids of groups and plans, and times of day, left open."""
    line = re.sub(r"[0-9a-f]{13}-[0-9a-f]+", "PLAN", re.sub(r"^[0-9a-f]{8} ", "GROUP ", line))
    text = re.escape(re.sub(r"\d\d:\d\d:\d\dZ", "TIME", line).rstrip())
    return text.replace("PLAN", r"[0-9a-f]+-[0-9a-f]+").replace("GROUP", r"[0-9a-f]{8}").replace("TIME", r"[\d:]+Z")


@pytest.mark.slow
def test_an_operator_sees_what_the_readme_shows(tmp_path):
    in_folder(tmp_path, "-c", FIFTY_FAIL)
    groups, replay = re.split(r"^\$ redrive ", block("console"), flags=re.MULTILINE)[1:]
    found = prints(tmp_path, groups)
    group = found.splitlines()[2][:4]
    prints(tmp_path, re.sub(r"--group \w+", f"--group {group}", replay))


def prints(folder: Path, shown: str) -> str:
    """Run the command that *shown* begins with; fail unless it prints every line that follows."""
    command, *lines = shown.splitlines()
    output = in_folder(folder, "-m", "redrive.cli", *shlex.split(command))
    assert [line for line in lines if line not in {"", "…"} and not re.search(as_pattern(line), output)] == [], output
    return output
