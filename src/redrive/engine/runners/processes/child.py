"""
One child process, seen from its parent.

Owns the life of a child: spawned (never forked), ready, the orders that were sent to it and have not ended, of which
it runs the first, dead for a known reason. Knows nothing about its pool except the `Pool` protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

import msgspec

from redrive.core.why import Why
from redrive.engine.runners.processes.frames import READY, Report, packed_letter, packed_order
from redrive.engine.runners.processes.marks import Marks, new_page
from redrive.engine.runners.processes.pipe import Pipe
from redrive.engine.runners.runs import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redrive.core.decide import Interrupted
    from redrive.engine.runners.pace import Pace
    from redrive.engine.runners.timeouts import Limit

# The child gets our path before it imports anything, so that every module is found as it is here.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); "
    "from redrive.engine.runners.processes.main import main; main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4]))"
)
_SEEN = 0.005  # seconds after which both processes surely see what the other has marked
_LAST_WORDS = 0.5  # seconds to wait for the end of a dead child's pipe: its handler's own children may hold it open


class ChildRun(Run, eq=False, kw_only=True):
    """One letter for a child: how the child builds its handler, and how quick that handler was lately."""

    recipe: bytes
    pace: Pace
    started: float = 0.0
    behind: bool = False  # started together with another letter that runs first
    number: int = READY  # of its order, once it is sent
    is_last: bool = True  # of those that were sent with it
    recalled: Interrupted | None = None  # set when the parent recalls it before it begins


class Pool(Protocol):
    """What a child reports to. Each call comes on the event loop's thread."""

    def ready(self, child: Child) -> None:
        """*child* can take letters."""

    def begins(self, child: Child) -> None:
        """*child* begins its letter only now, because it had to import the handler."""

    def reported(self, child: Child, ended: Sequence[tuple[ChildRun, Report]], took: float | None) -> None:
        """*child* has *ended* these, and begins the next that it has; the longest ran *took* seconds, if we know it."""

    def recalled(self, run: ChildRun) -> None:
        """*run* was recalled, and will not begin."""

    def broken(self, child: Child) -> None:
        """*child* takes no more letters: it is dead or broke the protocol, and will be buried."""

    def buried(self, child: Child) -> None:
        """*child* is dead, and all its reports were read."""


_SUCCESS = Report(READY)
_UNSENDABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


class Child:
    """A process that runs one letter at a time, and may have the next ones already."""

    def __init__(self, pool: Pool, lifeline: int, start_limit: float) -> None:
        """Spawn it; raise OSError if that cannot be done."""
        self.sent: deque[ChildRun] = deque()  # and not ended; it runs the first
        self.batches = 0  # in which they were sent
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
        with theirs, new_page() as page:
            self._marks = Marks(page.fileno())
            try:
                self._process = _spawn(theirs.fileno(), lifeline, page.fileno())
            except OSError:
                ours.close()
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

    @property
    def run(self) -> ChildRun | None:
        """What it runs, as far as we know."""
        return self.sent[0] if self.sent else None

    @property
    def ahead(self) -> ChildRun | None:
        """The first letter that was sent ahead, behind those that were sent with the one that it runs."""
        return next((run for before, run in itertools.pairwise(self.sent) if before.is_last), None)

    def give(self, runs: Sequence[ChildRun]) -> list[tuple[ChildRun, Exception]]:
        """
        Send it letters that it runs one after the other; return those that cannot be sent, with the reason.

        Raise ConnectionError if it is dead.
        """
        letters, refused = _packed(runs)
        if letters:
            last = self._number + len(letters)
            frames = [self._frame(*each, number, last) for number, each in enumerate(letters, self._number + 1)]
            self._pipe.send(frames[0] if len(frames) == 1 else b"".join(frames))
            self._number = last
            self.batches += 1
            self.sent.extend(run for run, _ in letters)
        return refused

    def _frame(self, run: ChildRun, letter: bytes, number: int, last: int) -> bytes:
        """Return the order for *run*; the order *last* is sent with it."""
        run.number, run.is_last, run.recalled = number, number == last, None
        self._marks.clear(number)
        return packed_order(number, run.recipe, letter, more=number < last)

    def recall(self, which: Callable[[ChildRun], bool], why: Interrupted) -> None:
        """
        Recall orders that have not begun; the pool gets back those that surely will not, a moment later.

        The child reports the others as recalled, unless they had begun.
        """
        for run in itertools.islice(self.sent, 1, None):
            if run.recalled is None and which(run):
                run.recalled = why
                self._marks.recall(run.number)
                self._loop.call_later(_SEEN, self._confirm, run)

    def _confirm(self, run: ChildRun) -> None:
        """Give *run* back unless it has begun: by now the child sees that it is recalled, and we would see its mark."""
        if not self._buried and run in self.sent and not self.has_begun(run):
            self._pool.recalled(run)

    def has_begun(self, run: ChildRun) -> bool:
        """Whether it has begun *run*, which was sent to it."""
        return self._marks.has_begun(run.number)

    def look(self) -> None:
        """Take in what has succeeded and is not reported yet."""
        if not self._buried and (ended := self._succeeded()):
            self._pool.reported(self, ended, None)

    def _succeeded(self) -> list[tuple[ChildRun, Report]]:
        """Take out what is marked as succeeded, in front of the first order that is not: that one runs, or reports."""
        ended = []
        while self.sent and self._marks.has_succeeded(self.sent[0].number):
            ended.append((self._ended(), _SUCCESS))
        return ended

    def _ended(self) -> ChildRun:
        run = self.sent.popleft()
        self.batches -= run.is_last
        return run

    @property
    def is_receiving(self) -> bool:
        """Whether a large letter is still on its way to it; no other can be sent until then."""
        return self._pipe.is_sending

    def retire(self) -> None:
        """Read no more reports, and let it end by itself: its pipe closes."""
        self._pipe.close()
        self._heard_all = True

    def kill(self, fault: str = "") -> None:
        """End it now, with everything that its handler started."""
        if self._process.returncode is None:
            self._fault = self._fault or fault
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    # ------------------------------------------------------------------ its reports

    def _hear(self, report: Report) -> None:
        if not self.is_ready:
            self._hear_first(report)
            return
        ended = self._succeeded()
        if not self.sent or self.sent[0].number != report.number:
            self._refuse()
        elif report.begins:
            self._pool.begins(self)
        else:
            ended.append((self._ended(), report))
        if ended:
            self._pool.reported(self, ended, None if report.recalled else report.took)

    def _hear_first(self, report: Report) -> None:
        if report.number != READY:
            self._refuse()
            return
        self.is_ready = True
        self._start_timer.cancel()
        self._pool.ready(self)

    def _refuse(self) -> None:
        self._pipe.close()
        self._silence("sent a report without an order")

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
            if ended := self._succeeded():
                self._pool.reported(self, ended, None)
            self._pool.buried(self)
            self._marks.close()


def _packed(runs: Sequence[ChildRun]) -> tuple[list[tuple[ChildRun, bytes]], list[tuple[ChildRun, Exception]]]:
    """Return the letters of *runs* as bytes, and those that have no such form."""
    packed: list[tuple[ChildRun, bytes]] = []
    refused: list[tuple[ChildRun, Exception]] = []
    for run in runs:
        try:
            packed.append((run, packed_letter(run.item)))
        except _UNSENDABLE as error:
            refused.append((run, error))
    return packed, refused


def _spawn(pipe: int, lifeline: int, page: int) -> subprocess.Popen[bytes]:
    path = msgspec.json.encode([entry for entry in sys.path if isinstance(entry, str)]).decode()
    return subprocess.Popen(  # noqa: S603 - our own interpreter with our own arguments
        [sys.executable, "-c", _BOOT, str(pipe), str(lifeline), path, str(page)],
        stdin=subprocess.DEVNULL,
        pass_fds=(pipe, lifeline, page),
        process_group=0,  # so that killing it also kills what its handler started
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"
