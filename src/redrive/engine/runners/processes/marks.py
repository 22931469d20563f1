"""
What a worker and one of its child processes note about orders without a word through the pipe.

Owns a page of shared memory. For each order there is a byte that the child sets when the order begins and when it has
succeeded, and a byte that the parent sets to recall it. So a child reports many successes in one message, and the
parent still knows exactly which order the child was running when it died. Knows no letter and no process.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from typing import IO

ROOM = 4_096  # orders; many more than a child holds at once, so a byte is free again when its number comes back
_BEGUN, _SUCCEEDED = 1, 2


def new_page() -> IO[bytes]:
    """Return an unnamed file that both processes map into their memory."""
    linux = sys.platform == "linux"  # which has files in memory
    file = os.memfd_create("redrive-marks") if linux else os.dup(tempfile.TemporaryFile().fileno())  # noqa: SIM115 - unnamed
    page = os.fdopen(file, "r+b", buffering=0)
    page.truncate(2 * ROOM)
    return page


class Marks:
    """The page, in one of the two processes."""

    def __init__(self, page: int) -> None:
        self._bytes = mmap.mmap(page, 2 * ROOM)

    def clear(self, number: int) -> None:
        """Forget the order that had this place before; the parent does so before it sends order *number*."""
        self._bytes[number % ROOM] = self._bytes[ROOM + number % ROOM] = 0

    def begin(self, number: int) -> bool:
        """Note, in the child, that order *number* begins; return False if it was recalled and must not begin."""
        self._bytes[number % ROOM] = _BEGUN
        return not self._bytes[ROOM + number % ROOM]

    def succeed(self, number: int) -> None:
        """Note, in the child, that order *number* has succeeded."""
        self._bytes[number % ROOM] = _SUCCEEDED

    def recall(self, number: int) -> None:
        """Ask the child not to begin order *number*; it may begin it nevertheless if it reads this too late."""
        self._bytes[ROOM + number % ROOM] = 1

    def has_begun(self, number: int) -> bool:
        """Whether order *number* has begun."""
        return bool(self._bytes[number % ROOM])

    def has_succeeded(self, number: int) -> bool:
        """Whether order *number* has succeeded."""
        return self._bytes[number % ROOM] == _SUCCEEDED

    def close(self) -> None:
        """Give the page back; may be called twice."""
        self._bytes.close()
