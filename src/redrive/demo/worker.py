"""
Real workers: `redrive worker` in processes of their own.

Owns their start, their end by `kill -9`, and the noise when one ends as it should not. They run in
the demo's folder with its redrive.toml and no other settings. Knows no letter.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

LOG = "worker.log"
_COMMAND = (sys.executable, "-m", "redrive.cli", "worker", "redrive.demo.shop:app", "--until-idle")


class WorkerFailed(Exception):
    """A worker ended by itself, and not because it was done."""


class DemoWorker:
    """One worker process."""

    def __init__(self, process: Process, folder: Path) -> None:
        self._process, self._folder = process, folder

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def done(self) -> bool:
        """Whether it ended because nothing is left to do; raise WorkerFailed if it ended otherwise."""
        code = self._process.returncode
        if code:
            raise WorkerFailed(f"worker {self.pid} ended with code {code}; its last words are in {self._folder / LOG}")
        return code == 0

    async def kill(self) -> None:
        """End it by kill -9, in the middle of its work."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def worker(folder: Path, release: str, *queues: str) -> AsyncIterator[DemoWorker]:
    """Run a worker of *release*, on these queues only if there are any; it does not outlive the block."""
    with (folder / LOG).open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *_COMMAND,
            *(f"--queue={queue}" for queue in queues),
            cwd=folder,
            env=_environment(release),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,  # Ctrl-C ends the demo, and the demo its worker
        )
    started = DemoWorker(process, folder)
    try:
        yield started
    finally:
        await started.kill()


def _environment(release: str) -> dict[str, str]:
    """Return our environment without the user's own settings; the worker imports this redrive."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("REDRIVE_")}
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))))
    return {**kept, "REDRIVE_RELEASE": release, "PYTHONPATH": path}
