"""Reading what a process says, without waiting for ever for one that says nothing."""

from __future__ import annotations

import select
import time
from typing import IO


def next_line(pipe: IO[bytes], seconds: float = 180.0) -> str:
    """Return the next line of a pipe that is not buffered, "" at its end; raise TimeoutError if none comes."""
    line, end = b"", time.monotonic() + seconds
    while not line.endswith(b"\n"):
        if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            message = f"no line came within {seconds} s, only {line!r}"
            raise TimeoutError(message)
        if not (byte := pipe.read(1)):
            break
        line += byte
    return line.decode()
