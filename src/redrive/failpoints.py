"""
Named places where a test may make the process fail.

Owns the switch: `REDRIVE_FAILPOINTS="settle.before_commit=kill@3,claim.after_commit=raise"`,
read once at import. Without it every point is a dictionary look-up that finds nothing.
Knows nothing of what the places mean; `grep -rn "hit(" src` lists them.
"""

from __future__ import annotations

import os
import signal
from typing import Final


class Injected(OSError):
    """What the action `raise` raises: looks like a failing disk."""


def parse(text: str) -> dict[str, list[str | int]]:
    """Read `name=action[@n],…`; *n* is the pass at which it acts, 1 unless given."""
    points: dict[str, list[str | int]] = {}
    for item in filter(None, text.split(",")):
        name, _, action = item.partition("=")
        verb, _, nth = action.partition("@")
        points[name.strip()] = [verb.strip(), int(nth or 1)]
    return points


ACTIVE: Final = parse(os.environ.get("REDRIVE_FAILPOINTS", ""))


def hit(name: str) -> None:
    """Pass the point *name*; does nothing unless a test armed it."""
    if name in ACTIVE:
        _act(name)


def _act(name: str) -> None:
    point = ACTIVE[name]
    point[1] = int(point[1]) - 1
    if point[1] != 0:
        return
    match point[0]:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(70)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case _:
            message = f"injected at {name}"
            raise Injected(message)
