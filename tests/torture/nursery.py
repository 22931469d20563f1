"""
Processes by the dozen a second.

Owns one small process that has imported everything and forks on demand: starting Python
anew for each of 10,000 kills would take hours. The nursery has no threads and opens no
database, so its children begin clean; when it ends, they end.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1
_PATIENCE = 120.0  # seconds until what was killed is gone; a disk may hold it for long


class Nursery:
    """Starts functions in processes of their own; use as a context."""

    def __enter__(self) -> Self:
        self._lock = threading.Lock()
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=_PATIENCE)
        self._process.stdout.close()

    def start(self, function: str, **arguments: Any) -> int:
        """Call `module:function` with *arguments* (plain data) in a new process; return its id."""
        return int(self._ask(start=function, arguments=arguments))

    def code(self, pid: int) -> int | None:
        """Return the exit code (negative: the signal), None while it runs."""
        found = self._ask(poll=pid)
        return None if found is None else int(found)

    def wait(self, pid: int, seconds: float) -> int:
        """Wait for the end of *pid* and return its code."""
        end = time.monotonic() + seconds
        while (code := self.code(pid)) is None:
            if time.monotonic() > end:
                message = f"process {pid} still runs after {seconds} s"
                raise TimeoutError(message)
            time.sleep(0.005)
        return code

    def kill(self, pid: int) -> None:
        """Kill -9, and bury; the id cannot have been used again, because the nursery has not reaped it."""
        os.kill(pid, signal.SIGKILL)
        self.wait(pid, _PATIENCE)

    def signal(self, pid: int, what: signal.Signals) -> None:
        """Send a signal; the id cannot have been used again."""
        os.kill(pid, what)

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


# ---------------------------------------------------------------------- in the nursery


def main() -> None:
    from tests.torture import workload  # noqa: F401, PLC0415 - what the children need is imported once

    with contextlib.suppress(ModuleNotFoundError):  # no driver: then nobody asks for it
        importlib.import_module("redrive.stores.postgres")

    codes: dict[int, int | None] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            pid = _start(request["start"], request["arguments"])
            codes[pid] = None
            print(pid, flush=True)
        else:
            print(json.dumps(_poll(request["poll"], codes)), flush=True)
    for pid, code in codes.items():
        if code is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _poll(pid: int, codes: dict[int, int | None]) -> int | None:
    if codes[pid] is None:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            codes[pid] = os.waitstatus_to_exitcode(status)
    return codes[pid]


def _start(function: str, arguments: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # never outlive the nursery
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        module, _, name = function.partition(":")
        getattr(importlib.import_module(module), name)(**arguments)
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:  # noqa: BLE001 - the child must end here, whatever happened
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
