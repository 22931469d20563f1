"""`migrate` under load: workers of the previous schema go on, and an open transaction of a user stops nobody."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.torture import looks, plug, upgrade
from tests.torture.checker import judge
from tests.torture.history import History
from tests.torture.kills import come_to_rest
from tests.torture.nursery import Nursery
from tests.torture.workload import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgres import Postgres

pytestmark = pytest.mark.torture

VERSION = "SELECT version FROM redrive.outbox_meta"


def test_workers_of_the_previous_schema_go_on_while_it_is_migrated(tmp_path: Path, pg: Postgres):
    common = {"folder": str(tmp_path), "url": pg.url, "lease": 5.0, "sweep": 0.2}
    with Nursery() as nursery, looks.at(pg.url) as look:
        workers = [nursery.start("tests.torture.upgrade:work", **common, produce=10**6, seed=n) for n in range(2)]
        plug._wait_for_workers(pg.url, 2)
        assert pg.psql(VERSION) == str(upgrade.previous("redrive")[-1][0])
        user = _open_transaction(pg)
        migrating = nursery.start("tests.torture.upgrade:migrate", url=pg.url)
        before = _delivered(look)
        assert wait_for(lambda: _delivered(look) > before + 100, 30), "a migration that waits stops all"
        user.communicate(b"COMMIT;\n", timeout=20)
        assert nursery.wait(migrating, 120) == 0
        assert pg.psql(VERSION) == str(upgrade.following("redrive")[-1][0])
        before = _delivered(look)
        assert wait_for(lambda: _delivered(look) > before + 100, 30), "nobody works after the migration"
        problems = plug._stop(nursery, workers)
        come_to_rest(nursery, tmp_path, url=pg.url, workers=1, produce=30)  # a worker of this release
    verdict = judge(History(tmp_path / "history"), pg.url, floor=200)
    assert verdict.ok, verdict
    assert not problems


def _delivered(look: looks.Look) -> int:
    return look.books().kept.get("delivered", 0)


def _open_transaction(pg: Postgres) -> subprocess.Popen[bytes]:
    """A user's transaction that has read the outbox, and stays open."""
    user = subprocess.Popen(
        [pg.bin / "psql", "-X", "-q", "-A", "-t", "-d", pg.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert user.stdin is not None
    assert user.stdout is not None
    user.stdin.write(b"BEGIN; SELECT count(*) FROM redrive.outbox;\n")
    user.stdin.flush()
    user.stdout.readline()
    return user
