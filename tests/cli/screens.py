"""A terminal of 80 by 24, and what a person sees on it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def seen(url: str, *command: str, answer: str = "", plain: bool = True, env: dict[str, str] | None = None) -> str:
    """Run a command on a terminal of 80 by 24 and return what it prints, without its styles if *plain*."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    hidden = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"}
    known = {name: value for name, value in os.environ.items() if name not in hidden}
    env = known | {"TERM": "xterm"} | (env or {})
    arguments = [sys.executable, "-m", "redrive.cli", "--url", url, *command]
    with subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as running:
        os.close(theirs)
        os.write(ours, answer.encode())
        printed = b"".join(iter(lambda: _read(ours), b"")).decode().replace("\r\n", "\n")
        running.wait()
    os.close(ours)
    return _STYLE.sub("", printed) if plain else printed


def _read(ours: int) -> bytes:
    try:
        return os.read(ours, 65_536)
    except OSError:  # the other end was closed
        return b""
