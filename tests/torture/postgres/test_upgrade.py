"""`migrate` under load: workers of the version before go on, and an open transaction of a user stops nobody."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cli.pipes import next_line
from tests.servers import contrib
from tests.servers.postgres import Missing, running
from tests.torture import looks, previous
from tests.torture.checker import judge
from tests.torture.history import History
from tests.torture.nursery import ROOT, Nursery
from tests.torture.runs import plug, upgrade
from tests.torture.runs.kills import come_to_rest
from tests.torture.workload import wait_for

from redrive.stores.postgres.sql import schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.postgres import Postgres

pytestmark = pytest.mark.torture

VERSION = "SELECT version FROM redrive.outbox_meta"
FUNCTIONS = "SELECT functions FROM redrive.outbox_meta"
VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('redrive.outbox_failed_error')"


@pytest.fixture
def whole_pg() -> Iterator[Postgres]:
    """A server with its extensions, so that the migration has an index to build."""
    try:
        server = running(contrib.binaries())
    except Missing as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))
    with server as started:
        yield started


def test_workers_of_the_previous_version_go_on_while_its_schema_is_migrated(tmp_path: Path, whole_pg: Postgres):
    pg = whole_pg
    pg.psql(previous.made())
    with Nursery() as nursery, looks.at(pg.url) as look, _open_transaction(pg) as user:
        start = "tests.torture.previous.worker:work"
        workers = [nursery.start(start, folder=str(tmp_path), url=pg.url, seed=n) for n in range(2)]
        _more_are_delivered(look, "before the migration")
        assert pg.psql(VERSION) == str(previous.SCHEMA)
        assert pg.psql(FUNCTIONS) != schema.digest()
        migrating = _redrive_migrate(pg)
        assert wait_for(lambda: pg.psql(FUNCTIONS) == schema.digest(), 180), "the migration waits for a user"
        _more_are_delivered(look, "while an index waits for a user")
        assert migrating.poll() is None
        user.communicate(b"COMMIT;\n", timeout=120)
        said = migrating.communicate(timeout=240)
        assert migrating.returncode == 0, said
        assert pg.psql(VALID) == "t"
        assert pg.psql(VERSION) == str(schema.newest())
        _more_are_delivered(look, "after the migration")
        problems = plug._stop(nursery, workers)
        assert (problems, [nursery.code(pid) for pid in workers]) == ([], [0, 0])
        come_to_rest(nursery, tmp_path, url=pg.url, workers=1, produce=30)  # a worker of this release
    verdict = judge(History(tmp_path / "history"), pg.url, floor=300)
    assert verdict.ok, verdict


def test_workers_of_this_version_go_on_while_the_next_one_is_made(tmp_path: Path, pg: Postgres):
    common = {"folder": str(tmp_path), "url": pg.url, "lease": 5.0, "sweep": 0.2}
    with Nursery() as nursery, looks.at(pg.url) as look:
        workers = [nursery.start("tests.torture.workload:work", **common, produce=10**6, seed=n) for n in range(2)]
        plug._wait_for_workers(pg.url, 2)
        with _open_transaction(pg) as user:
            migrating = nursery.start("tests.torture.runs.upgrade:migrate", url=pg.url)
            _more_are_delivered(look, "while a migration waits")
            user.communicate(b"COMMIT;\n", timeout=120)
        assert nursery.wait(migrating, 240) == 0
        assert pg.psql(VERSION) == str(upgrade.following("redrive")[-1][0])
        _more_are_delivered(look, "after the migration")
        problems = plug._stop(nursery, workers)
        come_to_rest(nursery, tmp_path, url=pg.url, workers=1, produce=30)
    verdict = judge(History(tmp_path / "history"), pg.url, floor=200)
    assert verdict.ok, verdict
    assert not problems


def _more_are_delivered(look: looks.Look, when: str) -> None:
    before = _delivered(look)
    assert wait_for(lambda: _delivered(look) > before + 100, 180), f"nobody works {when}"


def _delivered(look: looks.Look) -> int:
    return look.books().kept.get("delivered", 0)


def _redrive_migrate(pg: Postgres) -> subprocess.Popen[bytes]:
    env = {**os.environ, "REDRIVE_URL": pg.url, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        [sys.executable, "-m", "redrive.cli", "migrate"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@contextlib.contextmanager
def _open_transaction(pg: Postgres) -> Iterator[subprocess.Popen[bytes]]:
    """A user's transaction that has written to the outbox, as far as locks go, and stays open."""
    user = subprocess.Popen(
        [pg.tool("psql"), "-X", "-q", "-A", "-t", "-d", pg.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert user.stdin is not None
    assert user.stdout is not None
    user.stdin.write(b"BEGIN; UPDATE redrive.outbox SET why = why WHERE false; SELECT 1;\n")
    user.stdin.flush()
    try:
        assert next_line(user.stdout) == "1\n"
        yield user
    finally:
        user.kill()
        user.wait()
