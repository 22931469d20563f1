"""
The file is moved, put back, or replaced by a backup while workers write to it.

Owns the moves and what must hold after them: every acknowledged letter is in one of the files, the one at
the path or one that was moved aside. Which of them have run is not judged, because a backup takes it back.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from typing import TYPE_CHECKING

import apsw
from tests.torture import checker, looks
from tests.torture.checker import Verdict
from tests.torture.history import History
from tests.torture.nursery import Nursery

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WORK = "tests.torture.workload:work"
WORKERS = 2
_BESIDE = ("", "-wal", "-shm")


def at_random(folder: Path, moves: int, seed: int) -> Verdict:
    """Let workers put letters, move their file *moves* times, and look for every letter that was acknowledged."""
    rng = random.Random(seed)
    with Nursery() as nursery:

        def start() -> int:
            return nursery.start(WORK, folder=str(folder), seed=rng.randrange(1 << 30), produce=100_000, lease=5.0)

        pids = [start() for _ in range(WORKERS)]
        for number in range(moves):
            time.sleep(rng.uniform(0.1, 0.4))
            rng.choice(_MOVES)(folder, folder / f"aside-{number}")
            pids = [pid if nursery.code(pid) is None else start() for pid in pids]  # as a supervisor does
        time.sleep(0.5)
        for pid in pids:
            if nursery.code(pid) is None:
                nursery.kill(pid)
    return judge(folder, floor=moves)


def judge(folder: Path, *, floor: int) -> Verdict:
    """Return what became of the letters."""
    history = History(folder / "history")
    places = [folder / looks.NAME, *folder.glob(f"aside-*/{looks.NAME}")]
    kept = {letter for place in places if place.exists() for letter in checker.read_rows(place)}
    verdict = Verdict(attempted=len(history.offered), acknowledged=len(history.accepted), present=len(kept))
    lost = history.accepted - history.purged - kept
    verdict.lost = verdict.blame("acknowledged letters are in none of the files", sorted(lost))
    verdict.problems += checker.books_problems(folder / looks.NAME)
    if verdict.acknowledged < floor:
        verdict.problems.append(f"only {verdict.acknowledged} letters were acknowledged, fewer than {floor}")
    return verdict


# ---------------------------------------------------------------------- moves


def _away_and_back(folder: Path, aside: Path) -> None:
    _move(folder, aside, *_BESIDE)
    time.sleep(0.05)
    _move(aside, folder, *reversed(_BESIDE))


def _backup(folder: Path, aside: Path) -> None:
    """As the docs say it, but for the processes, which run."""
    if _back_up(folder):
        _move(folder, aside, *_BESIDE)
        _freeze(aside)
        (folder / "backup.db").rename(folder / looks.NAME)


def _backup_beside_the_old_wal(folder: Path, aside: Path) -> None:
    """As people do it: the old -wal lies there for a while."""
    if _back_up(folder):
        _move(folder, aside, "")
        (folder / "backup.db").rename(folder / looks.NAME)
        time.sleep(0.05)
        _move(folder, aside, "-wal", "-shm")
        _freeze(aside)


_MOVES: tuple[Callable[[Path, Path], None], ...] = (_away_and_back, _backup, _backup_beside_the_old_wal)


def _back_up(folder: Path) -> bool:
    """Whether there is a backup now; there is nothing to back up before the schema is made."""
    with (
        contextlib.suppress(apsw.Error),
        contextlib.closing(apsw.Connection(str(folder / looks.NAME), flags=apsw.SQLITE_OPEN_READWRITE)) as connection,
    ):
        connection.set_busy_timeout(1_000)
        connection.execute("SELECT count(*) FROM letters").fetchall()
        connection.execute("VACUUM INTO ?", (str(folder / "backup.db"),))
        return True
    return False


def _freeze(aside: Path) -> None:
    """Let nobody write any more into what was moved aside: who still has it open writes into nothing."""
    for ending in ("-wal", ""):  # what stands in the WAL may be on its way into the file, never the other way round
        original = aside / f"{looks.NAME}{ending}"
        if original.exists():
            shutil.copyfile(original, aside / "copy")
            (aside / "copy").replace(original)


def _move(source: Path, target: Path, *endings: str) -> None:
    target.mkdir(exist_ok=True)
    for ending in endings:
        with contextlib.suppress(FileNotFoundError):
            (source / f"{looks.NAME}{ending}").rename(target / f"{looks.NAME}{ending}")
