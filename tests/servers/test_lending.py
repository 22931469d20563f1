"""Servers that all processes of a run share: started once, when they are asked for, and gone with who leads the run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.servers.lending import Lender, Missing, ask

ROOT = Path(__file__).parents[2]
LIMIT = 60.0
LEADS = """
import contextlib, subprocess
from tests.servers.kafka import _die_with_parent
from tests.servers.lending import Lender, ask

@contextlib.contextmanager
def server():
    with subprocess.Popen(["sleep", "600"], preexec_fn=_die_with_parent) as process:
        try:
            yield str(process.pid)
        finally:
            process.kill()

with Lender(server=server) as lender:
    print(ask(lender.address, "server"), flush=True)
    input()
"""


@contextlib.contextmanager
def counted(started: list[str], ended: list[str]):
    started.append("server")
    yield f"place {len(started)}"
    ended.append("server")


def test_whoever_asks_is_given_the_same_server_and_it_ends_with_the_run():
    started, ended = [], []
    with Lender(server=lambda: counted(started, ended)) as lender, ThreadPoolExecutor(8) as many:
        assert started == []
        assert set(many.map(lambda _: ask(lender.address, "server"), range(8))) == {"place 1"}
        assert ended == []
    assert (started, ended) == (["server"], ["server"])


def test_a_server_that_cannot_be_had_is_tried_once_and_everyone_is_told_why():
    tries = []

    def server():
        tries.append("try")
        raise Missing("install it")

    with Lender(server=server) as lender:
        for _ in range(2):
            with pytest.raises(Missing, match="install it"):
                ask(lender.address, "server")
    assert tries == ["try"]


def test_who_hangs_up_before_the_answer_keeps_nobody_else_from_asking():
    from multiprocessing.connection import Client  # noqa: PLC0415 - the one caller that is rude

    with Lender(server=lambda: counted([], [])) as lender:
        Client(lender.address, family="AF_UNIX").close()
        assert ask(lender.address, "server") == "place 1"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_dies_with_who_leads_the_run(how):
    leading = subprocess.Popen(
        [sys.executable, "-c", LEADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    with leading:
        pid = int(leading.stdout.readline())
        os.kill(pid, 0)
        leading.send_signal(how)
    end = time.monotonic() + LIMIT
    while _lives(pid):
        assert time.monotonic() < end
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False
