"""Handlers that child processes import."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def pid_of(order: dict):
    Path(order["to"]).write_text(str(os.getpid()))


def die(order: dict):
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for(order: dict):
    """Wait until somebody has opened the pipe and closed it again."""
    Path(order["gate"]).read_text()


def divide(order: dict):
    return order["total"] / order["count"]
