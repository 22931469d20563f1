"""Handlers that child processes import. Some of them kill their process, on purpose."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

from redrive.core.letter import Letter  # noqa: TC001 - handlers' annotations are read at run time
from redrive.errors import Reject, RetryAfter


class Fatal(Exception):
    pass


class StillFatal(Fatal):
    pass


def succeed(payload: dict):
    return payload["order"]


async def succeed_async(payload: dict):
    await asyncio.sleep(0)


def is_seventeen(result: object) -> bool:
    return result == 17


def check_letter(payload: bytes, it: Letter):
    assert it.headers == (("a", b"\x00\xff"), ("a", b"2"))
    assert it.metadata == {"n": 1, "deep": [None, 1.5]}
    assert payload == it.payload


def check_size(payload: bytes):
    assert len(payload) == 64_000_000


def chatter(payload: dict):
    print("out loud")
    print("under its breath", file=sys.stderr)
    os.write(1, b"\x00\x00\x00\x01x" * 100)


def raise_connection_error(payload: dict):
    raise ConnectionError("the peer is gone")


def raise_fatal(payload: dict):
    raise StillFatal("as told")


def raise_reject(payload: dict):
    raise Reject("never")


def raise_retry_after(payload: dict):
    raise RetryAfter(12)


def raise_speechless(payload: dict):
    class Speechless(Exception):
        def __str__(self):
            raise RuntimeError

    raise Speechless


def raise_system_exit(payload: dict):
    sys.exit(5)


def _no_core_file():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def abort(payload: dict):
    _no_core_file()
    os.abort()


def segfault(payload: dict):
    _no_core_file()
    ctypes.string_at(0)


def exit_at_once(payload: dict):
    os._exit(3)


def kill_itself(payload: dict):
    os.kill(os.getpid(), signal.SIGKILL)


def run_out_of_memory(payload: dict):
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (512 * 1024 * 1024, hard))
    try:
        bytearray(4 * 1024 * 1024 * 1024)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def loop_endlessly(payload: dict):
    while True:
        pass


def wait_at(payload: dict):
    """Say that it runs, then wait for ever."""
    Path(payload["begun"]).write_text(str(os.getpid()))
    signal.pause()


def wait_on_pipe(payload: dict):
    """Wait until somebody opens the named pipe for writing, and closes it again."""
    Path(payload["gate"]).read_bytes()


def obey(payload: dict):
    """Do what the letter says: note its name or its process, wait on a named pipe, run for ever, die, fail."""
    if "note" in payload:
        with Path(payload["note"]).open("a") as notes:
            notes.write(payload["name"])
    if "pid" in payload:
        with Path(payload["pid"]).open("a") as pids:
            pids.write(f"{os.getpid()} ")
    if "gate" in payload:
        Path(payload["gate"]).read_bytes()
    while payload.get("loop"):
        pass
    if payload.get("die"):
        os._exit(3)
    if "die_once" in payload and not Path(payload["die_once"]).exists():
        Path(payload["die_once"]).touch()
        os._exit(3)
    if payload.get("fail"):
        raise ConnectionError("as told")


def hold_the_pipe_open(payload: dict):
    """Leave a process behind that has every descriptor of this one, then die."""
    if os.fork() == 0:
        signal.alarm(2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        while True:
            signal.pause()
    os._exit(9)


def start_a_program(payload: dict):
    """Start a program that outlives a killed parent, name it, and hang."""
    program = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    Path(payload["begun"]).write_text(str(program.pid))
    signal.pause()


def send_garbage(payload: dict):
    for descriptor in _pipes():
        os.write(descriptor, payload["garbage"].encode("latin-1"))


def close_the_pipe(payload: dict):
    for descriptor in _pipes():
        os.close(descriptor)
    signal.pause()


def _pipes() -> list[int]:
    """Return the descriptors of this process that are sockets: the pipe to the parent is the only one."""
    return [number for number in range(3, 4_096) if _is_socket(number)]  # its number is the parent's


def _is_socket(number: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False
