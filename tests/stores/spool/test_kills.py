"""kill -9 between every step of spooling and forwarding: what was accepted arrives, once and in order."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.stores.spool.shutter import Shuttered
from tests.torture.nursery import ROOT

from redrive.core.query import parse
from redrive.stores.contract import books

STEPS = [
    *(f"{step}=kill@{n}" for step in ("put.before", "put.after") for n in (1, 9)),
    *(
        f"sqlite.{step}=kill@{n}"
        for step in ("after_begin", "before_commit", "after_commit")
        for n in (4, 13, 23, 24, 25)
    ),
    *(f"spool.{step}=kill@1" for step in ("claimed", "forwarded", "left")),
    "settle.before=kill@1",
    "settle.after=kill@1",
]


def run(folder, first, count, failpoints=""):
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "REDRIVE_FAILPOINTS": failpoints}
    command = [sys.executable, "-m", "tests.stores.spool.forwarding", str(folder), str(first), str(count)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, [int(line) for line in done.stdout.split()], done.stderr


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_costs_no_letter_and_doubles_none(tmp_path, step):
    shutter = tmp_path / "store.db.away"
    shutter.touch()
    code, accepted, _ = run(tmp_path, 0, 20, step)
    assert code == -9
    shutter.touch()
    code, later, errors = run(tmp_path, 100, 5)
    assert (code, later) == (0, [100, 101, 102, 103, 104]), errors

    store = Shuttered(tmp_path / "store.db")
    await store.open()
    page = await store.find(parse(""), limit=100)
    arrived = [int(letter.payload) for letter in reversed(page.letters)]
    assert arrived == sorted(arrived)
    assert set(accepted) | set(later) <= set(arrived)
    assert len(set(arrived) - set(accepted) - set(later)) <= 1  # accepted, and killed before it could say so
    assert len(arrived) == len(set(arrived)) == books(await store.tallies())["enqueued"]
    await store.close()
