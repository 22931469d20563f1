"""`redrive copy`: letters move between files and servers, whatever happens to the process that moves them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from uuid import uuid4

import pytest
from tests.cli.conftest import Terminal
from tests.stores.conftest import server_url

from redrive.core.letter import Draft, Status
from redrive.core.moves import Move


@pytest.fixture
def filled(redrive):
    """A file with letters that are pending, delivered, failed and archived."""

    async def work(mill):
        drafts = [Draft(str(uuid4()), "default", "order.created", b"%d" % n, key=f"k{n % 7}") for n in range(400)]
        await mill.store.put(drafts)
        [await mill.settle("order.created", Move(Status.DELIVERED, "succeeded")) for _ in range(10)]
        await mill.store.act("cancel", [draft.id for draft in drafts[-5:]], by="ada", reason="")

    redrive.fill(work)
    return redrive


@pytest.fixture
def target(tmp_path):
    return Terminal(tmp_path / "target.db")


@pytest.fixture
def server():
    """A schema of the test's own on a real server."""
    return f"{server_url()}?schema=copy_{uuid4().hex[:12]}"


def run(*arguments: str, failpoints: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "redrive.cli", *arguments]
    env = os.environ | {"REDRIVE_FAILPOINTS": failpoints}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=120)


def report(*arguments: str) -> dict:
    done = run("copy", *arguments, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def balanced(books: dict[str, int]) -> bool:
    return books["enqueued"] == sum(count for status, count in books.items() if status != "enqueued")


@pytest.mark.slow
@pytest.mark.parametrize("point", ["adopt.inside=kill@2", "adopt.after=kill@2"])
def test_a_copy_that_was_killed_goes_on_when_it_is_run_again(filled, server, target, point):
    killed = run("copy", filled.url, server, "--yes", failpoints=point)
    assert killed.returncode == -signal.SIGKILL
    before = filled.statuses()
    there = report(filled.url, server)
    assert there["complete"]
    assert there["already_there"] == (350 + 50 if "after" in point else 50)
    assert there["copied"] + there["already_there"] == 400
    assert balanced(there["target_books"])
    assert filled.statuses() == before
    back = report(server, target.url)
    assert back["target_books"] == filled.json("stats")["books"]
    assert target.statuses() == before


@pytest.mark.slow
@pytest.mark.parametrize("point", ["adopt.inside=kill@2", "adopt.after=kill@1"])
def test_a_copy_into_a_file_that_was_killed_goes_on(filled, target, point):
    assert run("copy", filled.url, target.url, "--yes", failpoints=point).returncode == -signal.SIGKILL
    assert report(filled.url, target.url)["complete"]
    assert target.json("stats")["books"] == filled.json("stats")["books"]
    assert target.json("ls", "-n", "1000") == filled.json("ls", "-n", "1000")


def test_it_asks_and_says_what_it_did(filled, target):
    done = filled("copy", filled.url, target.url, answer="n\n", code=1)
    assert "copy 400 letters from" in done.output
    assert not target.path.exists()
    done = filled("copy", filled.url, target.url, answer="y\n")
    assert "400 letters in" in done.output
    assert "400 copied, 0 already there, 0 not copied" in done.output
    assert "start no more workers on it" in done.output
    assert any(entry["verb"] == "copy" for entry in target.json("audit")["entries"])


def test_a_store_under_two_names_is_not_copied_to_itself(filled):
    done = filled("copy", filled.url, filled.url, "--yes", code=1)
    assert "to itself" in done.output
    linked = filled.path.with_name("again.db")
    linked.symlink_to(filled.path)
    done = filled("copy", filled.url, f"sqlite:///{linked}", "--yes", code=1)
    assert "both are the same store" in done.output


def test_a_source_that_is_not_there_is_not_made(redrive, tmp_path, target):
    done = redrive("copy", f"sqlite:///{tmp_path}/nothing.db", target.url, "--yes", code=1)
    assert "there is no such file" in done.output
    assert not (tmp_path / "nothing.db").exists()
    assert not target.path.exists()


def test_passwords_are_never_printed(filled):
    done = filled("copy", filled.url, "postgresql://ada:secret@127.0.0.1:1/none", answer="y\n", code=1)
    assert "ada:***@127.0.0.1" in done.output
    assert "secret" not in done.output


def test_letters_that_could_not_be_copied_end_it_with_code_1(filled, server):
    names = [f"mail-{n}" for n in range(5)]  # no UUIDs, which PostgreSQL needs

    async def work(mill):
        await mill.store.put([Draft(name, "default", "mail.sent", b"{}") for name in names])

    filled.fill(work)
    done = run("copy", filled.url, server, "--yes")
    assert done.returncode == 1
    assert "400 copied, 0 already there, 5 not copied" in done.stdout
    assert f"not copied: {names[0]} (mail.sent in queue default): its id is no UUID" in done.stdout
    assert done.stdout.count("not copied: ") == len(names)
