"""`redrive spool`."""

from __future__ import annotations

import asyncio

import pytest
from tests.stores.samples import draft, letter_id
from typer.testing import CliRunner

from redrive.cli.root import app
from redrive.stores.spool.spool_file import SpoolFile


@pytest.fixture
def path(tmp_path):
    async def fill():
        file = SpoolFile(str(tmp_path / "spool.db"), limit=10)
        await file.open()
        await file.keep([draft("a", kind="mail", after=(letter_id("gone"),)), draft("b", kind="mail")])
        for held in (await file.next("work"))[:1]:
            await file.refuse(held, LookupError("no letter has this id"))
        await file.close()

    asyncio.run(fill())
    return str(tmp_path / "spool.db")


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_stats_say_what_waits_and_what_was_refused(path):
    said = run("spool", "stats", "--spool", path)
    assert said.exit_code == 1
    assert said.output.startswith("degraded, 1 waiting, 1 refused: 0 forwarded")


def test_ls_shows_each_letter_and_why_it_was_refused(path):
    said = run("spool", "ls", "--spool", path, "--json")
    assert said.exit_code == 0, said.output
    assert '"status": "refused"' in said.output
    assert '"status": "waiting"' in said.output
    assert "no letter has this id" in said.output
    assert '"kind": "mail"' in said.output


def test_a_refused_letter_is_retried_or_dropped(path):
    assert run("spool", "retry", letter_id("a"), "--spool", path).exit_code == 0
    assert "degraded, 2 waiting:" in run("spool", "stats", "--spool", path).output
    refused = run("spool", "drop", letter_id("b"), "--spool", path)
    assert refused.exit_code == 1  # it waits, and is no one's to drop


def test_a_spool_that_is_not_there_is_not_made(tmp_path):
    said = run("spool", "stats", "--spool", str(tmp_path / "none.db"))
    assert said.exit_code == 1
    assert not (tmp_path / "none.db").exists()
