"""Workers that child processes import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from redrive import Reject


def fine(record):
    assert record.value is not None


def fails(record):
    raise RuntimeError(f"no {record.value.decode()}")


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
