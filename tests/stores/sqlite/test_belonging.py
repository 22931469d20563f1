"""A WAL that lies beside another database than its own is refused before anything of it is applied."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import apsw
import pytest
from tests.stores.samples import check_books, claim, letter_id, names, put

from redrive.core.query import parse
from redrive.errors import StoreDamaged, StoreUnavailable
from redrive.stores.contract import WorkerBeat
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.file import locks

if TYPE_CHECKING:
    from pathlib import Path

    from redrive.stores.clock import ManualClock


def vacuum(path: Path, to: Path) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("VACUUM INTO ?", (str(to),))


def copy_pages(path: Path, to: Path) -> None:
    with (
        contextlib.closing(apsw.Connection(str(path))) as source,
        contextlib.closing(apsw.Connection(str(to))) as target,
        target.backup("main", source, "main") as backup,
    ):
        backup.step()
    with contextlib.closing(apsw.Connection(str(to))) as target:
        target.pragma("journal_mode", "delete")


def crash(path: Path, to: Path) -> None:
    """Leave at *to* what a process that is killed now would leave at *path*."""
    for ending in ("", "-wal"):
        shutil.copyfile(f"{path}{ending}", f"{to}{ending}")


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    (tmp_path / "crashed").mkdir()
    return tmp_path / "crashed" / "redrive.db"


async def kept(path: Path, clock: ManualClock) -> set[str]:
    store = SqliteStore(path, clock=clock)
    await store.open()
    found = {letter.id for letter in (await store.find(parse(""), limit=1_000)).letters}
    await check_books(store)
    await store.close()
    return found


async def checkpoint(store: SqliteStore, path: Path) -> None:
    """Bring all of the WAL home, and begin a new one at the next write."""
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("SELECT count(*) FROM letters").fetchall()  # before that it knows of no WAL
        pages, done = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        assert pages == done


@pytest.mark.parametrize("back_up", [vacuum, copy_pages])
@pytest.mark.parametrize("moment", ["earlier", "just before the WAL began", "within the WAL", "before a heartbeat"])
async def test_a_backup_copied_over_a_crashed_file_is_not_broken_by_the_old_wal(
    sqlite, path, crashed, clock, back_up, moment
):
    backup = path.with_name("backup.db")
    await put(sqlite, "a")
    if moment == "earlier":
        back_up(path, backup)
        await put(sqlite, "b")
    await checkpoint(sqlite, path)
    if moment in ("just before the WAL began", "before a heartbeat"):
        back_up(path, backup)
    if moment != "before a heartbeat":
        await put(sqlite, "c")
    if moment == "within the WAL":
        back_up(path, backup)
        await put(sqlite, "d")
    await sqlite.extend(WorkerBeat(name="w", kinds=("k",)), [], lease=60)
    crash(path, crashed)
    shutil.copyfile(backup, crashed)
    before = crashed.read_bytes(), crashed.with_name("redrive.db-wal").read_bytes()
    with pytest.raises(
        StoreDamaged, match=r"-wal' does not belong to .*nothing was applied.*move .* away.*will be missing"
    ):
        await SqliteStore(crashed, clock=clock).open()
    assert (crashed.read_bytes(), crashed.with_name("redrive.db-wal").read_bytes()) == before
    crashed.with_name("redrive.db-wal").unlink()
    assert letter_id("a") in await kept(crashed, clock)


async def test_a_copy_of_the_file_from_before_is_told_from_it_although_its_pages_lie_alike(path, crashed, clock):
    store = SqliteStore(path, clock=clock)
    await store.open()
    await put(store, "a")
    await store.close()
    shutil.copyfile(path, path.with_name("backup.db"))
    await store.open()
    await put(store, "b")
    await checkpoint(store, path)
    await put(store, "c")
    crash(path, crashed)
    await store.close()
    shutil.copyfile(path.with_name("backup.db"), crashed)
    with pytest.raises(StoreDamaged, match="does not belong"):
        await SqliteStore(crashed, clock=clock).open()


async def test_the_wal_of_a_crash_is_taken_for_what_it_is_at_every_moment(sqlite, path, tmp_path, clock):
    """Copies of both files after each step, also amid checkpoints by others, and after schema changes."""
    steps = 0
    with contextlib.closing(apsw.Connection(str(path))) as other:
        other.execute("SELECT count(*) FROM letters").fetchall()
        for number in range(40):
            await put(sqlite, f"{number}")
            if number % 5 == 1:
                other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if number % 11 == 3:
                await checkpoint(sqlite, path)
            if number % 13 == 4:
                other.execute(f"CREATE TABLE of_an_operator_{number} (x)")
            if number == 30:
                other.execute("VACUUM")
            image = tmp_path / f"image-{number}.db"
            crash(path, image)
            assert letter_id(f"{number}") in await kept(image, clock)
            steps += 1
    assert steps == 40


async def test_a_database_that_is_half_brought_home_keeps_its_wal(sqlite, path, crashed, clock):
    """Page by page, as a crash in the middle of a checkpoint leaves it."""
    for number in range(6):
        await put(sqlite, f"{number}")
    crash(path, crashed)
    pages = {}
    wal = crashed.with_name("redrive.db-wal").read_bytes()
    for at in range(32, len(wal), 24 + 4096):
        pages.setdefault(int.from_bytes(wal[at : at + 4]), []).append(wal[at + 24 : at + 24 + 4096])
    original = crashed.read_bytes()
    for number, versions in pages.items():
        for page in versions:
            image = bytearray(original.ljust(number * 4096, b"\0"))
            image[(number - 1) * 4096 : number * 4096] = page
            crashed.write_bytes(image)
            crashed.with_name("redrive.db-wal").write_bytes(wal)
            assert len(await kept(crashed, clock)) == 6


async def test_a_wal_whose_first_page_a_power_cut_left_unwritten_is_not_taken_for_a_strangers(
    sqlite, path, crashed, clock
):
    """The head of its frame is new, its content is that of an older WAL: SQLite passes over it, and so must we."""
    await put(sqlite, "a")
    old = path.with_name("redrive.db-wal").read_bytes()
    await checkpoint(sqlite, path)
    await put(sqlite, "b")
    await checkpoint(sqlite, path)
    await put(sqlite, "c")
    crash(path, crashed)
    wal = bytearray(crashed.with_name("redrive.db-wal").read_bytes())
    [stale] = [at for at in range(32, len(old), 24 + 4096) if old[at : at + 4] == bytes((0, 0, 0, 2))][-1:]
    first = next(at for at in range(32, len(wal), 24 + 4096) if wal[at : at + 4] == bytes((0, 0, 0, 2)))
    wal[first + 24 : first + 24 + 4096] = old[stale + 24 : stale + 24 + 4096]
    crashed.with_name("redrive.db-wal").write_bytes(wal)
    assert await kept(crashed, clock) == {letter_id("a"), letter_id("b")}


_DIES = """
import asyncio, os, sys
from redrive.core.letter import Draft
from redrive.stores.sqlite import SqliteStore

async def main(path):
    store = SqliteStore(path)
    await store.open()
    await store.put([Draft(id="first", queue="work", kind="a", payload=b"{}")])
    os.kill(os.getpid(), 9)

asyncio.run(main(sys.argv[1]))
"""


def test_a_process_killed_over_a_new_file_leaves_one_that_opens(path, clock):
    subprocess.run([sys.executable, "-c", _DIES, os.fspath(path)], check=False)
    assert asyncio.run(kept(path, clock)) == {"first"}


_GOES_ON = (
    r"-wal' does not belong to .*nothing was applied.*move .*-wal' and the -shm file beside it away, and this process "
    r"goes on by itself.*letters that are only in the -wal will be missing"
)


async def test_a_backup_put_in_its_place_beside_the_old_wal_is_refused_by_a_running_store(sqlite, path):
    await put(sqlite, "a")
    vacuum(path, path.with_name("backup.db"))
    await put(sqlite, "b")
    path.with_name("backup.db").rename(path)
    with pytest.raises(StoreUnavailable, match=r"another file was put in its place.*-wal' lies beside it, move that"):
        await put(sqlite, "c")
    for asked in (put(sqlite, "d"), sqlite.get(letter_id("a"))):
        with pytest.raises(StoreUnavailable, match=_GOES_ON):
            await asked
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink()
    await put(sqlite, "f")
    assert names(await claim(sqlite)) == ["a", "f"]
    await check_books(sqlite)


async def test_a_running_store_goes_on_once_the_file_that_the_wal_belongs_to_is_back(sqlite, path):
    await put(sqlite, "a")
    vacuum(path, path.with_name("backup.db"))
    await put(sqlite, "b")
    path.rename(path.with_name("old.db"))
    path.with_name("backup.db").rename(path)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await put(sqlite, "c")
    path.with_name("old.db").rename(path)
    await put(sqlite, "d")
    assert {"a", "b", "d"} <= set(names(await claim(sqlite)))
    await check_books(sqlite)


@pytest.mark.skipif(locks._SET_LOCK is None, reason="this system has no locks of open files")
async def test_a_backup_beside_the_shm_of_a_process_that_still_runs_is_refused(sqlite, path, clock):
    await put(sqlite, "a")
    vacuum(path, path.with_name("backup.db"))
    await put(sqlite, "b")
    path.with_name("backup.db").rename(path)
    path.with_name("redrive.db-wal").unlink()
    other = SqliteStore(path, clock=clock)
    with pytest.raises(StoreUnavailable, match=r"-shm' is another file's.*move it away too, or stop that process"):
        await other.open()
    await sqlite.close()
    await other.open()
    assert names(await claim(other)) == ["a"]
    await other.close()
