"""
End a process whose event loop is blocked.

Owns a thread that looks whether the loop still turns. Nothing inside the loop can help a
loop that is blocked: its heartbeats stop, its leases end, and its letters would run a
second time beside the first. Knows no letters.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_CODE = 70  # a supervisor starts the worker again
_LOOKS = 4


def _end() -> None:
    sys.stderr.write("redrive: the event loop is blocked; ending this worker so that its letters can be rescued\n")
    faulthandler.dump_traceback(file=sys.stderr)
    os._exit(EXIT_CODE)


class Watchdog:
    """Calls *bite*, which ends the process, once the loop has not turned for *seconds*."""

    def __init__(self, seconds: float, bite: Callable[[], None] = _end) -> None:
        self._span, self._bite = seconds / _LOOKS, bite
        self._turns = 0
        self._over = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._turn(asyncio.get_running_loop())
        threading.Thread(target=self._watch, name="redrive-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no longer."""
        self._over.set()
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turns += 1
        self._timer = loop.call_later(self._span / 2, self._turn, loop)

    def _watch(self) -> None:
        seen, missed = self._turns, 0
        while not self._over.wait(self._span):
            seen, missed = self._turns, missed + 1 if self._turns == seen else 0
            if missed >= _LOOKS:
                self._bite()
                return
