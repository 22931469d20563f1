"""
End a process whose event loop is blocked.

Owns a thread that checks whether the event loop still beats. Nothing inside the loop can help once it is blocked:
its heartbeats stop, its leases end, and another worker would run its letters a second time. Knows no letters.
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
_CHECKS = 4  # in a row without a beat before it bites


def _end() -> None:
    sys.stderr.write("redrive: the event loop is blocked; ending this worker so that its letters can be rescued\n")
    faulthandler.dump_traceback(file=sys.stderr)
    os._exit(EXIT_CODE)


class Watchdog:
    """Calls *bite*, which ends the process, once the event loop has not beaten for *seconds*."""

    def __init__(self, seconds: float, bite: Callable[[], None] = _end) -> None:
        self._span, self._bite = seconds / _CHECKS, bite
        self._beats = 0
        self._over = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._beat(asyncio.get_running_loop())
        threading.Thread(target=self._watch, name="redrive-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no longer."""
        self._over.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._beats += 1
        self._timer = loop.call_later(self._span / 2, self._beat, loop)

    def _watch(self) -> None:
        seen, missed = self._beats, 0
        while not self._over.wait(self._span):
            seen, missed = self._beats, missed + 1 if self._beats == seen else 0
            if missed >= _CHECKS:
                self._bite()
                return
