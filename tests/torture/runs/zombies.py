"""
Workers that are stopped past their lease, and come back.

Owns SIGSTOP at a chosen moment (while handlers run, or at a failpoint between a decision
and its write), another worker that finishes the letters meanwhile, and SIGCONT.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from tests.torture.checker import Verdict, judge
from tests.torture.history import History
from tests.torture.runs.kills import LEASE, SWEEP, WORK, place_of
from tests.torture.workload import wait_for

from redrive.stores.sqlite.file.locks import FileHold

if TYPE_CHECKING:
    from tests.torture.nursery import Nursery

MOMENTS = (
    "running",  # its handlers run
    "processor.before_decide",  # it has outcomes, and has not decided
    "exchange.before",  # it has decided, and not written
    "processor.before_start",  # it holds letters that it has not begun
    "rescue.before_settle",  # it has found lost letters, and not taken them back
)


def awake_again(
    nursery: Nursery, folder: Path, moment: str, *, url: str = "", seed: int = 0, mutant: str = "", patience: float = 60
) -> Verdict:
    """Stop a worker at *moment*, let another finish everything, let the first go on, judge."""
    place = place_of(folder, url)
    common = {"folder": str(folder), "url": url, "lease": LEASE, "sweep": SWEEP, "mutant": mutant}
    if moment == "rescue.before_settle":
        _leave_behind(nursery, folder, common)
    armed = "" if moment == "running" else f"{moment}=stop@{1 if moment.startswith('rescue') else 2 + seed % 3}"
    zombie = nursery.start(WORK, **common, seed=seed, produce=30, hanging=0, napping=8, armed=armed)
    if moment == "running":
        wait_for(lambda: len(_history(folder).starts) > 12, 10)
        os.kill(zombie, signal.SIGSTOP)
    stopped = wait_for(lambda: _stopped(zombie), 20, 0.001) and (bool(url) or _lets_others_write(zombie, folder))
    other = nursery.start(WORK, **common, until_idle=True, produce=10)
    finished = wait_for(lambda: nursery.code(other) is not None, patience) and nursery.code(other) == 0
    os.kill(zombie, signal.SIGCONT)
    before = _history(folder).refused
    wait_for(lambda: _history(folder).refused > before, 5)
    os.kill(zombie, signal.SIGTERM)
    wait_for(lambda: nursery.code(zombie) is not None, patience)
    code = nursery.code(zombie)
    last = nursery.start(WORK, **common, until_idle=True)
    wait_for(lambda: nursery.code(last) is not None, patience)
    for pid in (zombie, other, last):
        if nursery.code(pid) is None:
            nursery.kill(pid)
    verdict = judge(_history(folder), place, floor=10)
    if not (stopped and finished and code == 0):
        verdict.problems.append(f"stopped {stopped}, the other finished {finished}, the zombie ended with {code}")
    return verdict


def _leave_behind(nursery: Nursery, folder: Path, common: dict[str, object]) -> None:
    first = nursery.start(WORK, **common, hanging=6)
    wait_for(lambda: len(_history(folder).starts) == 6, 20)
    nursery.kill(first)


def _lets_others_write(zombie: int, folder: Path) -> bool:
    """
    Make sure that it was not stopped inside a transaction, or while it holds the lock for writing around one.

    No process could write then, and that is SQLite's promise, not a fault. It may take a step or two
    until it sleeps between two transactions.
    """
    for _ in range(100):
        wait_for(lambda: _stopped(zombie), 5, 0.001)
        if _is_free(str(folder / "redrive.db")):
            return True
        os.kill(zombie, signal.SIGCONT)
        time.sleep(0.003)
        os.kill(zombie, signal.SIGSTOP)
    return False


def _is_free(path: str) -> bool:
    """Whether this process can take the lock for writing, and write."""
    hold = FileHold.of(path, create=False)
    try:
        if not hold.take_write_lock(lambda _asked: False):
            return False
        try:
            return _can_write(path)
        finally:
            hold.drop_write_lock()
    finally:
        hold.close()


def _can_write(path: str) -> bool:
    connection = apsw.Connection(path)
    try:
        connection.execute("BEGIN IMMEDIATE; ROLLBACK")
    except (apsw.BusyError, apsw.ProtocolError):
        return False
    else:
        return True
    finally:
        connection.close()


def _history(folder: Path) -> History:
    return History(folder / "history")


def _stopped(pid: int) -> bool:
    """Whether every thread of it has stopped; they do so one by one."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}
