"""
Boots of the machine, numbered in the file.

Owns how this boot is told from others, and its number, which leases begin with. Knows no lease and no letter.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from redrive.stores.sqlite import rows
from redrive.stores.sqlite.file.database import immediately
from redrive.stores.sqlite.file.stranger_wal import next_mark
from redrive.stores.sqlite.sql import statements

if TYPE_CHECKING:
    import apsw

_SQL = statements("boots")


def boot_number(connection: apsw.Connection) -> int:
    """
    Return this boot's number, the highest there is: leases of all other boots are smaller, so they have ended.

    A file that comes back from another host finds this boot with an old number, and gives it a new one.
    """
    boot_id = _boot_id()
    with immediately(connection):
        newest = connection.execute(_SQL["newest"]).fetchone()
        if newest is not None and newest[1] == boot_id:
            return int(newest[0])
        connection.execute(_SQL["forget"], (boot_id,))
        number = 1 + (int(newest[0]) if newest else 0)
        connection.execute(_SQL["keep"], (number, boot_id))
        (mark,) = rows.the_row(connection, _SQL["mark"])
        connection.execute(_SQL["keep_mark"], (next_mark(mark, connection.pragma("schema_version")),))
    return number


def _boot_id() -> str:
    """Return what tells this boot from all others, on Linux, on macOS, and roughly elsewhere."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        asked = ["sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=5).stdout.strip()  # noqa: S603
    # A guess that is off ends leases early: letters may run twice, none is stuck.
    return f"booted about {(time.time() - time.monotonic()) // 600:.0f}"
