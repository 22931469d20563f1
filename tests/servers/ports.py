"""
Ports for servers that are ended and started again.

Owns the choice: outside of the range that the system takes the ports of outgoing connections
from. Within it, a connection of anybody may have the port by the time that the server is
started again; a client that keeps trying it may even connect to itself. A port that was given
out is given to nobody else, in any process, while the one that asked for it lives.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _HIGHEST = 10_000, 65_535


def free_port() -> int:
    """Return a port of the loopback that no one uses, and no one else is given."""
    offered = _offered()
    for port in random.sample(offered, len(offered)):
        if _is_claimed(port) and is_free(port):  # in this order: a look binds it, which would end another's server
            return port
    with socket.socket() as probe:  # outgoing connections have them all
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _offered() -> range:
    """Return the larger of the stretches below and above the range of outgoing connections."""
    low, high = map(int, _RANGE.read_text().split()) if _RANGE.exists() else (32_768, _HIGHEST)
    return max(range(_LOWEST, low), range(high + 1, _HIGHEST), key=len)


def is_free(port: int) -> bool:
    """Whether nobody listens, or is connected, at *port* of the loopback."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _is_claimed(port: int) -> bool:
    """Claim *port* among all processes: by a name that the kernel frees when the process ends, and no file."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0redrive-test-port-{port}")
    except OSError:
        claim.close()
        return False
    claim.detach()  # open from now on
    return True
