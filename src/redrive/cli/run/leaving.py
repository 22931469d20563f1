"""
Leave a process that has done its work.

Owns the last resort: Python waits for threads that handlers started (`asyncio.to_thread`), for ever if
need be, although every letter is settled or given back by then and may run elsewhere. Knows no worker.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redrive.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Iterator

_GOODBYE = 5.0  # seconds for which such threads are waited for


class Leaving:
    """Ends the process, with *code*, some seconds after `begin`, unless it is called off."""

    def __init__(self, seconds: float = _GOODBYE) -> None:
        self.code = 0
        self._timer = threading.Timer(seconds, self._leave)
        self._timer.daemon = True

    def begin(self) -> None:
        """Say that there is nothing left to wait for."""
        self._timer.start()

    def call_off(self) -> None:
        """Do not end it: it ends by itself."""
        self._timer.cancel()

    def _leave(self) -> None:
        note("redrive: everything is settled or given back; threads that handlers started still run, and are left")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(self.code)


@contextmanager
def leaving() -> Iterator[Leaving]:
    """Give what ends the process if the block does not end soon after it has said that it has begun to leave."""
    last = Leaving()
    try:
        yield last
    finally:
        last.call_off()
