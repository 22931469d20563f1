"""
A second SQLite library in the processes under torture, looking at the same file all the time.

Owns the looks, by the standard library's `sqlite3` in a thread and by `aiosqlite` in the loop, each with a
connection of its own that is closed again: closing it is what drops the locks of the process. A look may fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aiosqlite
from tests.torture.history import Log

if TYPE_CHECKING:
    import random

FOLDER = "other-library"
_COUNT = "SELECT count(*) FROM letters"


def look_on(folder: str, rng: random.Random) -> asyncio.Future[None]:
    """Look from now on, in both ways, until this process or its loop ends."""
    path, log = Path(folder) / "redrive.db", Log(Path(folder) / FOLDER)
    threading.Thread(target=_look, args=(path, log, rng), daemon=True).start()
    return asyncio.ensure_future(_look_in_the_loop(path, log, rng))


def _look(path: Path, log: Log, rng: random.Random) -> None:
    while True:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=0.1)) as connection:
            connection.execute(_COUNT).fetchall()
            log.write(("looked", "sqlite3"))
        time.sleep(rng.uniform(0.001, 0.02))


async def _look_in_the_loop(path: Path, log: Log, rng: random.Random) -> None:
    while True:
        with contextlib.suppress(sqlite3.Error):
            async with aiosqlite.connect(path, timeout=0.1) as connection, connection.execute(_COUNT) as cursor:
                await cursor.fetchall()
            log.write(("looked", "aiosqlite"))
        await asyncio.sleep(rng.uniform(0.001, 0.02))


def looks(folder: Path) -> int:
    """Return how many looks there were."""
    return sum(len(path.read_text().splitlines()) for path in (folder / FOLDER).glob("*.log"))
