"""
The workers that one application runs.

Owns which of them run, on which event loop, and how they are stopped: by a signal, by a call from any thread, or by the
watchdog. Knows no letter and no store.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from redrive.engine.worker.stop_signals import hearing
from redrive.engine.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redrive.engine.worker.worker import Worker


class RunningWorkers:
    """The workers that run now."""

    def __init__(self) -> None:
        self._loops: dict[Worker, asyncio.AbstractEventLoop] = {}

    def __len__(self) -> int:
        """Return how many run."""
        return len(self._loops)

    async def run(self, worker: Worker, *, until_idle: bool, signals: bool, watchdog: float | None) -> bool:
        """Run *worker* until it ends. SIGTERM and SIGINT stop it if *signals*; *watchdog* is in seconds."""
        self._loops[worker] = asyncio.get_running_loop()
        try:
            with hearing(worker.stop) if signals else contextlib.nullcontext(), _watched(watchdog):
                return await worker.run(until_idle=until_idle)
        finally:
            del self._loops[worker]

    def stop(self) -> None:
        """Let each finish what runs and end; a second call stops them now. Any thread may call it."""
        for worker, loop in tuple(self._loops.items()):
            with contextlib.suppress(RuntimeError):  # its loop was closed while it ran: no worker is left to stop
                loop.call_soon_threadsafe(worker.stop)


@contextlib.contextmanager
def _watched(seconds: float | None) -> Iterator[None]:
    """End the process if its event loop is blocked for *seconds*, if that is set."""
    guard = Watchdog(seconds) if seconds else None
    if guard:
        guard.start()
    try:
        yield
    finally:
        if guard:
            guard.stop()
