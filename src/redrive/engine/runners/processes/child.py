"""
One child process, seen from its parent.

Owns the life of a child: spawned (never forked), ready, at most one letter that runs and one that was sent ahead
and has not begun, dead for a known reason. Knows nothing about its pool except the `Pool` protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Protocol

import msgspec

from redrive.core.why import Why
from redrive.engine.runners.processes.frames import READY, RunOrder, pack, recall
from redrive.engine.runners.processes.pipe import Pipe
from redrive.engine.runners.runs import Run

if TYPE_CHECKING:
    from redrive.core.decide import Interrupted
    from redrive.engine.runners.pace import Pace
    from redrive.engine.runners.processes.frames import Report
    from redrive.engine.runners.timeouts import Limit

# The child gets our path before it imports anything, so that every module is found as it is here.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); "
    "from redrive.engine.runners.processes.main import main; main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4]))"
)
_LAST_WORDS = 0.5  # seconds to wait for the end of a dead child's pipe: its handler's own children may hold it open


class ChildRun(Run, eq=False, kw_only=True):
    """One letter for a child: how the child builds its handler, and how quick that handler was lately."""

    recipe: bytes
    pace: Pace
    recalled: Interrupted | None = None  # set when the parent recalls it before it begins


class Pool(Protocol):
    """What a child reports to. Each call comes on the event loop's thread."""

    def ready(self, child: Child) -> None:
        """*child* can take letters."""

    def begins(self, child: Child) -> None:
        """*child* begins its letter only now, because it had to import the handler."""

    def reported(self, child: Child, run: ChildRun, report: Report) -> None:
        """*run* has ended; the letter that was sent ahead, if any, begins, and *child* can take the next."""

    def broken(self, child: Child) -> None:
        """*child* takes no more letters: it is dead or broke the protocol, and will be buried."""

    def buried(self, child: Child) -> None:
        """*child* is dead, and all its reports were read."""


class Child:
    """A process that runs one letter at a time, and may have the next already."""

    def __init__(self, pool: Pool, lifeline: int, start_limit: float) -> None:
        """Spawn it; raise OSError if that cannot be done."""
        self.run: ChildRun | None = None  # what it runs
        self.ahead: ChildRun | None = None  # sent ahead; begins once it has reported the other
        self.is_ready = False
        self.recipes: set[bytes] = set()  # the handlers that it has imported
        self.began = 0.0  # when it began what it runs; kept by its limit
        self.limit: Limit[Child] | None = None  # of what it runs
        self._pool = pool
        self._number = READY  # of the order that was sent last
        self._fault = ""
        self._heard_all = False
        self._buried = False
        self._loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        recalls, words = os.pipe()
        self._recalls = os.fdopen(words, "wb", buffering=0)
        with theirs, os.fdopen(recalls, "rb", buffering=0):
            try:
                self._process = _spawn(theirs.fileno(), lifeline, recalls)
            except OSError:
                ours.close()
                self._recalls.close()
                raise
        self._pipe = Pipe(ours, self._hear, self._silence)
        self._start_timer = self._loop.call_later(start_limit, self.kill, f"was not ready within {start_limit:g} s")
        threading.Thread(target=self._wait, name="redrive-child", daemon=True).start()

    @property
    def fate(self) -> str:
        """How it ended, in words."""
        code = self._process.returncode
        if self._fault:
            return Why.PROCESS_ENDED.naming(self._fault)
        if code < 0:
            return Why.PROCESS_ENDED.naming(f"was killed by {_signal_name(-code)}")
        return Why.PROCESS_ENDED.naming(f"exited with code {code}")

    def give(self, run: ChildRun) -> None:
        """Send it a letter; raise ConnectionError if it is dead, or what msgspec raises for what cannot be sent."""
        self._pipe.send(pack(RunOrder(self._number + 1, run.recipe, run.item)))
        self._number += 1
        if self.run is None:
            self.run = run
        else:
            self.ahead = run

    def recall(self, why: Interrupted) -> None:
        """Recall what was sent ahead; the child reports it as recalled, unless it has begun by then."""
        if self.ahead is not None:
            self.ahead.recalled = why
            with contextlib.suppress(OSError, ValueError):  # it is dead, so nothing begins there
                self._recalls.write(recall(self._number))  # a few bytes: there is always room for them

    @property
    def is_receiving(self) -> bool:
        """Whether a large letter is still on its way to it; no other can be sent until then."""
        return self._pipe.is_sending

    def retire(self) -> None:
        """Read no more reports, and let it end by itself: its pipe closes."""
        self._pipe.close()
        self._recalls.close()
        self._heard_all = True

    def kill(self, fault: str = "") -> None:
        """End it now, with everything that its handler started."""
        if self._process.returncode is None:
            self._fault = self._fault or fault
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    # ------------------------------------------------------------------ its reports

    def _hear(self, report: Report) -> None:
        if report.number != self._number - (self.ahead is not None) or (self.run is None and self.is_ready):
            self._pipe.close()
            self._silence("sent a report without an order")
        elif self.run is None:
            self.is_ready = True
            self._start_timer.cancel()
            self._pool.ready(self)
        elif report.begins:
            self._pool.begins(self)
        else:
            ended, self.run, self.ahead = self.run, self.ahead, None
            self._pool.reported(self, ended, report)

    def _silence(self, why: str) -> None:
        self._heard_all = True
        if self._process.returncode is not None:
            self._bury()
            return
        if self.is_ready:
            self._pool.broken(self)
        if why:
            self.kill(why)
        else:  # it is ending, or its handler closed the pipe
            self._loop.call_later(_LAST_WORDS, self.kill, "closed its pipe")

    # ------------------------------------------------------------------ how it ends

    def _wait(self) -> None:
        """Wait for its death, in a thread: the end of the pipe alone is no proof of it."""
        self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: no outcome is needed any more
            self._loop.call_soon_threadsafe(self._died)

    def _died(self) -> None:
        if self._heard_all:
            self._bury()
        else:  # a process that its handler started may hold the pipe open
            self._loop.call_later(_LAST_WORDS, self._bury)

    def _bury(self) -> None:
        if not self._buried:
            self._buried = True
            self._start_timer.cancel()
            self._pipe.close()
            self._recalls.close()
            self._pool.buried(self)


def _spawn(pipe: int, lifeline: int, recalls: int) -> subprocess.Popen[bytes]:
    path = msgspec.json.encode([entry for entry in sys.path if isinstance(entry, str)]).decode()
    return subprocess.Popen(  # noqa: S603 - our own interpreter with our own arguments
        [sys.executable, "-c", _BOOT, str(pipe), str(lifeline), path, str(recalls)],
        stdin=subprocess.DEVNULL,
        pass_fds=(pipe, lifeline, recalls),
        process_group=0,  # so that killing it also kills what its handler started
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"
