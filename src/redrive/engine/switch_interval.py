"""
How often the interpreter switches threads while a worker, a consumer or an inbox runs.

Owns one setting of the interpreter. A store that writes in a thread of its own needs the interpreter's lock for
microseconds, a dozen times per batch. By default it may wait 5 ms each time while handlers compute or requests are
read, and so may a heartbeat. Knows no store, no worker and no request.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERVAL = 0.0005  # seconds; shorter ones cost handlers more than the store gains

_lock = threading.Lock()
_before: list[float] = []  # one entry for each of them that runs in this process


@contextmanager
def quick_switching() -> Iterator[None]:
    """Switch threads quickly; the last one to leave restores the setting that the first one found."""
    with _lock:
        _before.append(_before[0] if _before else sys.getswitchinterval())
        sys.setswitchinterval(min(INTERVAL, _before[0]))
    try:
        yield
    finally:
        with _lock:
            found = _before.pop()
            if not _before:
                sys.setswitchinterval(found)
