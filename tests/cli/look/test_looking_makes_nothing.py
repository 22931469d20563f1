"""Whoever only looks, or acts on what is not there, makes no database."""

from __future__ import annotations

import subprocess

import pytest
from tests.servers.postgres import shared
from tests.stores.conftest import server_url
from typer.testing import CliRunner

from redrive import cli
from redrive.cli.root import COMMANDS

ID = "01938a5e-0000-7000-8000-000000000000"
LOOKING = {
    "ls": ["ls"],
    "show": ["show", ID],
    "groups": ["groups"],
    "replay": ["replay", "-q", "status:failed", "--yes"],
    "archive": ["archive", ID],
    "restore": ["restore", ID],
    "cancel": ["cancel", ID],
    "purge": ["purge", ID, "--yes", "--confirm", "1"],
    "edit": ["edit", ID, "--payload", "{}"],
    "explain": ["explain", ID],
    "stats": ["stats"],
    "top": ["top", "--once"],
    "audit": ["audit"],
    "check": ["check"],
    "queues": ["queues", "list"],
    "queues pause": ["queues", "pause", "work"],
    "subscriptions": ["subscriptions", "list"],
    "subscriptions add": ["subscriptions", "add", "event", "handler"],
}
MAKING = {"worker", "enqueue", "migrate", "demo", "copy"}


def run(url: str, *arguments: str):
    return CliRunner().invoke(cli.app, ["--url", url, *arguments])


@pytest.fixture
def empty_database() -> str:
    """Return the URL of a database that nobody has used yet."""
    server_url()
    server = shared(18)
    server.psql("DROP DATABASE IF EXISTS untouched")
    server.psql("CREATE DATABASE untouched")
    yield server.url.removesuffix("/postgres") + "/untouched"
    server.psql("DROP DATABASE untouched WITH (FORCE)")


def schemas(url: str) -> str:
    tool = shared(18).tool("psql")
    sql = "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg%' AND nspname NOT LIKE 'information%'"
    return subprocess.run([tool, "-XAt", "-d", url, "-c", sql], check=True, capture_output=True, text=True).stdout


def test_every_command_either_makes_a_database_or_is_tried_here():
    assert {*COMMANDS} - MAKING <= LOOKING.keys()


def test_a_copy_from_an_empty_postgresql_database_makes_nothing_there(empty_database, tmp_path):
    done = run(empty_database, "copy", empty_database, f"sqlite:///{tmp_path}/target.db", "--yes")
    assert done.exit_code == 1
    assert "schema 'redrive' has no redrive tables; make them with `redrive migrate`" in done.stderr
    assert schemas(empty_database) == "public\n"
    assert not (tmp_path / "target.db").exists()


def test_on_an_empty_postgresql_database_no_command_that_looks_makes_tables(empty_database):
    for name, arguments in LOOKING.items():
        done = run(empty_database, *arguments)
        assert (name, done.exit_code) == (name, 1)
        assert "schema 'redrive' has no redrive tables; make them with `redrive migrate`" in done.stderr, name
        assert schemas(empty_database) == "public\n", name
    assert run(empty_database, "migrate").exit_code == 0
    assert run(empty_database, "ls").exit_code == 0
    assert run(empty_database, "check").exit_code == 0


def test_a_letter_may_be_the_first_thing_in_a_postgresql_database(empty_database):
    assert run(empty_database, "enqueue", "kind", "{}").exit_code == 0
    assert "kind" in run(empty_database, "ls").stdout


@pytest.mark.parametrize("empty", [False, True], ids=["missing", "empty"])
def test_a_sqlite_file_that_is_not_there_or_empty_stays_so(tmp_path, empty):
    path = tmp_path / "typo.db"
    if empty:
        path.touch()
    for name, arguments in LOOKING.items():
        done = run(f"sqlite:///{path}", *arguments)
        if name != "check":  # the first worker will make it, so nothing is wrong
            assert (name, done.exit_code) == (name, 1)
            assert "create it with `redrive migrate`" in done.stderr, name
        assert [file.name for file in tmp_path.iterdir()] == ["typo.db"] * empty, name
        assert not empty or not path.stat().st_size, name


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sqlite:///:memory:", "it is no file; memory:// keeps them in memory"),
        ("sqlite:///{folder}/none.db?mode=ro", "takes none; leave them out"),
    ],
)
@pytest.mark.parametrize("command", [*LOOKING, "migrate"])
def test_a_url_that_no_command_can_use_is_refused_for_that_and_not_for_its_missing_file(tmp_path, url, why, command):
    done = run(url.format(folder=tmp_path), *LOOKING.get(command, [command]))
    assert done.exit_code == 1
    assert why in done.stderr
    assert "redrive migrate" not in done.output
    assert "will be made" not in done.output
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- a password that was not percent-encoded


@pytest.mark.parametrize(
    "password",
    ["hun/ter2", "hun#ter2", "hun?ter2", "hunter2\u2100", "1/hunter2", "1?hunter2", "1#hunter2", "h@1:hunter2"],
)
@pytest.mark.parametrize(
    "command", [["ls"], ["check"], ["check", "--json"], ["migrate"], ["enqueue", "kind", "{}"]], ids=" ".join
)
def test_a_password_is_never_shown_however_the_url_falls_apart(password, command):
    done = run(f"postgresql://ana:{password}@127.0.0.1:1/shop", *command)
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    assert "percent-encode" in done.output
    assert "hun" not in done.output


def test_a_password_in_the_place_of_a_port_is_not_shown():
    done = run("postgresql://ana:hunter2/shop", "ls")
    assert "percent-encode" in done.stderr
    assert "hunter2" not in done.output
