"""`redrive worker` serves metrics while it works, each of several processes on a port of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers.ports import free_port

import redrive
from redrive.cli.run.supervisor import Supervisor

SHOP = """
import os, pathlib, urllib.request
from redrive import Redrive

app = Redrive("sqlite:///letters.db")

@app.handler("look")
def look(_: dict) -> None:
    url = f"http://127.0.0.1:{os.environ['REDRIVE_METRICS_PORT']}/metrics"
    pathlib.Path("page").write_bytes(urllib.request.urlopen(url, timeout=60).read())
"""


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(Path(redrive.__file__).parents[1])} | variables
    command = [sys.executable, "-m", "redrive.cli", "--url", "sqlite:///letters.db", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_a_worker_serves_metrics_where_it_was_told_to(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    run(tmp_path, "enqueue", "look", "{}")

    done = run(tmp_path, "worker", "shop:app", "--until-idle", REDRIVE_METRICS_PORT=str(free_port()))

    assert done.returncode == 0, done.stderr
    assert 'redrive_letters{kind="look",queue="default",status="in_flight"} 1.0' in (tmp_path / "page").read_text()


@pytest.mark.slow
def test_a_worker_whose_port_is_taken_says_so_and_runs_nothing(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(tmp_path, "worker", "shop:app", "--until-idle", REDRIVE_METRICS_PORT=port)
    assert done.returncode == 1
    assert f"redrive: cannot serve metrics on 127.0.0.1:{port}" in done.stderr


async def test_each_supervised_process_knows_which_one_it_is(tmp_path):
    code = f"import os, pathlib; pathlib.Path({str(tmp_path)!r}, os.environ['REDRIVE_SLOT']).touch()"
    await Supervisor([sys.executable, "-c", code], until_idle=True).run(3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
