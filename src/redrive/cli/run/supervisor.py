"""
Keep N worker processes running.

Owns starting them, restarting those that die (with a growing rest), passing signals on, and the
lifeline by which workers notice that their supervisor is gone. Knows nothing of letters.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING

from redrive.cli.output import note
from redrive.core.policy import RetryPolicy

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Sequence

LIFELINE = "REDRIVE_LIFELINE"  # the file descriptor that ends with the supervisor
SLOT = "REDRIVE_SLOT"  # which of the processes it is, from 0; a restarted one has its predecessor's
_RESTS = RetryPolicy.exponential(0.5, 30.0, jitter="none")  # before a worker that died is started again
_STEADY = 60.0  # seconds; a worker that lived this long is restarted without a longer rest


def supervise(command: Sequence[str], count: int, *, until_idle: bool) -> int:
    """
    Run *count* processes of *command* until told to stop; return the exit code.

    A process that dies is started again; under *until_idle* one that ends with 0 is done. SIGTERM and
    SIGINT are passed on as SIGTERM, the second one too: workers drain at the first, stop at the second.
    """
    return asyncio.run(Supervisor(command, until_idle=until_idle).run(count))


class Supervisor:
    """Runs processes and remembers whether it was told to stop."""

    def __init__(self, command: Sequence[str], *, until_idle: bool, rests: RetryPolicy = _RESTS) -> None:
        self._command, self._until_idle, self._rests = command, until_idle, rests
        self._stopping = asyncio.Event()
        self._running: set[Process] = set()
        self._lifeline = -1

    async def run(self, count: int) -> int:
        """Keep *count* processes until all of them are done or told to stop."""
        loop = asyncio.get_running_loop()
        self._lifeline, end = os.pipe()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            codes = await asyncio.gather(*(self._keep(slot) for slot in range(count)))
        finally:
            os.close(self._lifeline)
            os.close(end)
        return 1 if any(codes) else 0

    def stop(self) -> None:
        """Start nothing more, and pass the word on; a second call passes it on again."""
        self._stopping.set()
        for process in self._running:
            _ask_to_end(process)

    async def _keep(self, slot: int) -> int:
        """Run one process after the other in *slot*; return the last one's code."""
        deaths = 0  # in a row
        while True:
            began = asyncio.get_running_loop().time()
            code = await self._once(slot)
            if self._stopping.is_set() or (self._until_idle and code == 0):
                return code
            lived = asyncio.get_running_loop().time() - began
            deaths = 1 if lived > _STEADY else deaths + 1
            rest = self._rests.delay(deaths, 0.0)
            note(f"redrive: worker {slot + 1} {_ending(code)} after {lived:.1f} s; starting it again in {rest:g} s")
            if await self._told_to_stop(rest):
                return code

    async def _once(self, slot: int) -> int:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(self._lifeline,),
            env={**os.environ, LIFELINE: str(self._lifeline), SLOT: str(slot)},
            process_group=0,  # a terminal's Ctrl-C reaches only the supervisor, so workers hear it once
        )
        self._running.add(process)
        if self._stopping.is_set():  # told to stop while it was being started
            _ask_to_end(process)
        try:
            return await process.wait()
        finally:
            self._running.discard(process)

    async def _told_to_stop(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True


def _ask_to_end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended, and is about to be taken off the list
        process.send_signal(signal.SIGTERM)


def slot() -> int:
    """Return which of the supervised processes this one is, from 0; 0 for one without a supervisor."""
    return int(os.environ.pop(SLOT, "0"))


def hold_lifeline() -> None:
    """In a supervised worker: ask this process to stop as soon as the supervisor is gone."""
    lifeline = os.environ.pop(LIFELINE, "")
    if lifeline:
        threading.Thread(target=_watch, args=(int(lifeline),), name="redrive-lifeline", daemon=True).start()


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns once every holder of the other end is gone
    os.kill(os.getpid(), signal.SIGTERM)


def _ending(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
