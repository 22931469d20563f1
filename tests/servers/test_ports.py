"""Ports of servers that are started again: nobody else's, and none that an outgoing connection may take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers.ports import free_port

ROOT = Path(__file__).parents[2]
ALL_OF_A_FEW = """
from tests.servers import ports
ports._offered = lambda: range(29_000, 29_040)
print(*(ports.free_port() for _ in range(10)), flush=True)
input()
"""


@pytest.mark.skipif(not Path("/proc/sys/net/ipv4/ip_local_port_range").exists(), reason="the range is not known here")
def test_a_port_is_none_that_an_outgoing_connection_may_take():
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if low <= 10_000 and high >= 65_000:
        pytest.skip("outgoing connections have them all")
    assert not any(low <= free_port() <= high for _ in range(20))


@pytest.mark.skipif(sys.platform != "linux", reason="ports are claimed by Linux's own kind of names")
def test_two_processes_are_never_given_the_same_port():
    command = [sys.executable, "-c", ALL_OF_A_FEW]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]
    given = [each.stdout.readline().split() for each in both]
    for each in both:
        each.communicate("\n")
    assert [len(ports) for ports in given] == [10, 10]
    assert not set(given[0]) & set(given[1])
