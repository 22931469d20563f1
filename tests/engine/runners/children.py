"""Handlers that run in children, and what can be seen of a child from outside."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from tests.engine import handlers_for_processes as handlers
from tests.engine.starting import comes_true

from redrive.engine.handler import build_handler


def handler(function, **options):
    """Return the handler that runs *function* in a child."""
    return build_handler("order", function, engine="process", **options)


SUCCEED = handler(handlers.succeed)


async def pid_in(path: Path) -> int:
    """Return the process id that a child writes into *path*."""
    assert await comes_true(lambda: path.exists() and path.read_text())
    return int(path.read_text())  # noqa: ASYNC240 - a few digits


async def is_gone(pid: int) -> bool:
    """Wait until the process has ended."""
    return await comes_true(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def told(path: Path) -> bytes:
    """Return the payload that names *path* to the handlers which wait."""
    return json.dumps({"begun": str(path), "gate": str(path)}).encode()
