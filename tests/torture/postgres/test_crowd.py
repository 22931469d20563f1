"""Eight processes on one PostgreSQL server: every letter runs once, of a key one at a time and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.torture.runs import crowd

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.postgres import Postgres

pytestmark = pytest.mark.torture


def test_eight_processes_run_every_letter_once(tmp_path: Path, pg: Postgres):
    verdict = crowd.drain(tmp_path, pg.url, processes=8, letters=10_000)
    assert verdict.ok, verdict
    assert verdict.delivered == verdict.runs == 10_000


def test_eight_processes_keep_the_order_of_every_key(tmp_path: Path, pg: Postgres):
    verdict = crowd.drain(tmp_path, pg.url, processes=8, letters=4_000, keys=200)
    assert verdict.ok, verdict
    assert verdict.delivered == verdict.runs == 4_000
