"""Workers that child processes import."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import resource
import signal
import sqlite3
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from redrive import Reject, RetryAfter


def fine(record):
    assert record.value is not None


def fails(record):
    raise RuntimeError(f"no {record.value.decode()}")


def writes_a_row_twice(record):
    raise sqlite3.IntegrityError("UNIQUE constraint failed")


def fails_silently(record):
    raise ConnectionRefusedError


def fails_from_a_cause(record):
    raise RuntimeError("no soup") from KeyError("pot")


class Greeter:
    """A worker with a configuration; counts the records it had."""

    def __init__(self, *, greeting, names=()):
        assert isinstance(names, list)
        self.greeting, self.names, self.seen = greeting, names, 0

    def __call__(self, record):
        self.seen += 1
        raise RuntimeError(f"{self.greeting} {'+'.join(self.names)} for the {self.seen}. time")


class BatchGreeter(Greeter):
    def __call__(self, records):
        super().__call__(records[0])


def makes_nothing():
    return None


def succeeds_at_third(record):
    if record.attempt < 3:
        raise RuntimeError("not yet")


def rejects(record):
    raise Reject("never")


def hangs(record):
    time.sleep(60)


def dies_once(record):
    flag = Path(record.value.decode())
    if not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def dies(record):
    os.kill(os.getpid(), signal.SIGKILL)


def dies_if_poison(record):
    if record.value == b"poison":
        os.kill(os.getpid(), signal.SIGKILL)


async def dies_if_poison_async(record):
    await asyncio.sleep(0)
    dies_if_poison(record)


CONNECTION = None


def wants_to_be_in_a_child(record):
    assert "pytest" not in sys.modules


def needs_a_connection(record):
    assert CONNECTION is not None


def fails_if_poison(record):
    if record.value == b"poison":
        raise RuntimeError("later")


def raises_what_cannot_travel(record):
    error = RuntimeError("with a lock inside")
    error.lock = os.open
    raise error


def sees_everything(record):
    seen = (record.topic, record.partition, record.offset, record.key, record.value, list(record.headers))
    assert seen == ("orders", 3, 9, None, b"", [("a", None), ("a", b"\xff")]), seen
    assert (record.timestamp, record.attempt) == (12, 1)


def raises_timeout(record):
    raise TimeoutError("of my own")


def batch_dies_if_poison(records):
    if any(record.value == b"poison" for record in records):
        os.kill(os.getpid(), signal.SIGKILL)


def batch_is_fine(records):
    assert all(record.value is not None for record in records)


# ---------------------------------------------------------------------- what a worker process may meet


def _segfault():
    ctypes.string_at(0)


def _hang_in_c():
    re.match(r"(a+)+$", "a" * 60 + "b")  # for ever, with the interpreter's lock held


def _out_of_memory():
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), most))
    try:
        sum(len(each) for each in [bytearray(1 << 20) for _ in range(1000)])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _flood():
    for _ in range(2000):
        sys.stdout.write("x" * 10_000)
    raise RuntimeError("y" * 20_000_000)


FATES = {
    b"killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    b"segfault": _segfault,
    b"exits": lambda: os._exit(3),
    b"hangs": lambda: time.sleep(60),
    b"hangs in c": _hang_in_c,
    b"memory": _out_of_memory,
    b"flood": _flood,
}


def meets_its_fate(record):
    """Do what the value says; write down what ends well in the file that a header names."""
    FATES.get(record.value, lambda: None)()
    with Path(dict(record.headers)["book"].decode()).open("ab", buffering=0) as book:
        book.write(record.value + b"\n")


def batch_meets_its_fate(records):
    for record in records:
        meets_its_fate(record)


# ---------------------------------------------------------------------- who says how long to wait


class _Busy(Exception):
    """What clients of busy services raise."""


def _busy(**says):
    error = _Busy("come again")
    for name, value in says.items():
        setattr(error, name, value)
    return error


WAITS = {
    b"RetryAfter": lambda: RetryAfter(3600),
    b"an attribute": lambda: _busy(retry_after=3600),
    b"a header": lambda: _busy(response=SimpleNamespace(status_code=503, headers={"Retry-After": "3600"})),
}


def asks_to_wait(record):
    """Fail at the first try as the value says, and ask for an hour."""
    make = WAITS.get(record.value)
    if make is not None and record.attempt == 1:
        raise make()


def batch_asks_to_wait(records):
    for record in records:
        asks_to_wait(record)
