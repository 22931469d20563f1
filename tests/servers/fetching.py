"""
One process at a time fetches what servers need.

Owns the lock: the processes of one run of tests begin together, on a fresh machine all of them find an empty cache,
and neither Maven nor apt shares its folders with another of its kind. Also owns that a network is asked again.
Knows nothing of what is fetched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TRIES = 3
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "redrive"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until nobody else fetches; look again, inside, whether there is still something to fetch."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "fetching.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run *command*, which asks a network, once more if it fails; return what the last try came to."""
    for _ in range(_TRIES):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
    return done
