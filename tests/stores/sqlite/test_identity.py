"""The file is removed, moved or replaced under a running store: nothing is acknowledged that nobody can find again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import apsw
import pytest
from tests.stores.samples import check_books, claim, draft, letter_id, names, put

from redrive.core.query import parse
from redrive.errors import StoreUnavailable
from redrive.stores.sqlite import SqliteStore, putting
from redrive.stores.sqlite.file import database, locks

if TYPE_CHECKING:
    from pathlib import Path

    from redrive.stores.clock import ManualClock


def beside(path: Path, *endings: str) -> list[Path]:
    return [path.with_name(path.name + ending) for ending in endings]


def remove(path: Path, *endings: str) -> None:
    for each in beside(path, *endings):
        each.unlink()


def back_up(path: Path, to: Path) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("VACUUM INTO ?", (str(to),))


async def kept(store: SqliteStore) -> set[str]:
    return {letter.id for letter in (await store.find(parse(""), limit=1_000)).letters}


async def test_nothing_is_acknowledged_once_the_file_was_removed(sqlite, path):
    await put(sqlite, "a")
    remove(path, "", "-wal", "-shm")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"removed or moved away.*put it back, or restart"):
            await put(sqlite, "b")
    assert not path.exists(), "a running store must not begin an empty file by itself"


async def test_a_store_goes_on_when_its_file_is_put_back(sqlite, path, tmp_path):
    await put(sqlite, "a")
    away = tmp_path / "away"
    away.mkdir()
    for each in beside(path, "", "-wal", "-shm"):
        each.rename(away / each.name)
    with pytest.raises(StoreUnavailable, match=r"removed or moved away"):
        await put(sqlite, "b")
    with pytest.raises(StoreUnavailable, match=r"removed or moved away"):
        await sqlite.get(letter_id("a"))
    for each in away.iterdir():
        each.rename(path.with_name(each.name))
    await put(sqlite, "c")
    assert {"a", "c"} <= set(names(await claim(sqlite)))
    await check_books(sqlite)


async def test_nothing_is_acknowledged_into_a_file_that_a_backup_has_replaced(sqlite, path, tmp_path):
    await put(sqlite, "a")
    back_up(path, tmp_path / "backup.db")
    await put(sqlite, "b")
    remove(path, "-wal", "-shm")
    (tmp_path / "backup.db").rename(path)
    with pytest.raises(StoreUnavailable, match=r"another file was put in its place.*try again"):
        await put(sqlite, "c")
    await put(sqlite, "d")
    assert await kept(sqlite) == {letter_id("a"), letter_id("d")}, "as the backup has it"
    await check_books(sqlite)


async def test_who_only_reads_notices_too_that_another_file_is_there(sqlite, path, tmp_path):
    await put(sqlite, "a")
    back_up(path, tmp_path / "backup.db")
    await put(sqlite, "b")
    assert len(await kept(sqlite)) == 2
    remove(path, "-wal", "-shm")
    (tmp_path / "backup.db").rename(path)
    with pytest.raises(StoreUnavailable, match=r"another file was put in its place"):
        await sqlite.get(letter_id("b"))
    with contextlib.suppress(StoreUnavailable):
        await sqlite._calls.writer.submit(lambda _turn: None)  # once it is answered the writer has looked
    assert await kept(sqlite) == {letter_id("a")}


@pytest.mark.parametrize("endings", [("-wal",), ("-shm",), ("-wal", "-shm")])
async def test_a_letter_that_was_refused_and_kept_all_the_same_is_not_doubled_by_trying_again(sqlite, path, endings):
    await put(sqlite, "a")
    remove(path, *endings)
    again = r"may have been kept: try again with the same id or idempotency key"
    with pytest.raises(StoreUnavailable, match=again):
        await sqlite.put([draft("b", idempotency_key="of b")])
    [receipt] = await sqlite.put([draft("another id", idempotency_key="of b")])
    assert await kept(sqlite) == {letter_id("a"), receipt.id}
    await check_books(sqlite)


async def test_a_running_store_makes_no_database_of_an_empty_file_that_a_copy_begins_with(sqlite, path):
    await put(sqlite, "a")
    back_up(path, path.with_name("backup.db"))
    remove(path, "", "-wal", "-shm")
    path.touch()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await put(sqlite, "b")
    assert path.stat().st_size == 0
    shutil.copyfile(path.with_name("backup.db"), path)
    await put(sqlite, "c")
    assert await kept(sqlite) == {letter_id("a"), letter_id("c")}


@pytest.mark.parametrize("endings", [("-wal",), ("-shm",), ("-wal", "-shm")])
async def test_files_beside_the_database_that_are_removed_cost_no_letter(sqlite, path, endings, clock):
    await put(sqlite, "a")
    remove(path, *endings)
    with pytest.raises(StoreUnavailable, match="-wal or -shm file was removed or replaced"):
        await put(sqlite, "b")
    await put(sqlite, "c")
    assert {letter_id("a"), letter_id("c")} <= await kept(sqlite)
    await check_books(sqlite)
    await sqlite.close()
    again = SqliteStore(path, clock=clock)
    await again.open()
    assert {letter_id("a"), letter_id("c")} <= await kept(again)
    await again.close()


async def test_a_second_store_of_the_process_goes_on_as_well(sqlite, path, clock: ManualClock):
    other = SqliteStore(path, clock=clock)
    await other.open()
    await put(sqlite, "a")
    remove(path, "-wal", "-shm")
    refused = 0
    for number in range(3):
        for store in (sqlite, other):
            try:
                await put(store, f"{number} of {id(store)}")
            except StoreUnavailable:
                refused += 1
    assert refused >= 2
    await put(sqlite, "of one")
    await put(other, "of the other")
    assert {letter_id("a"), letter_id("of one"), letter_id("of the other")} <= await kept(other)
    await other.close()
    await put(sqlite, "last")
    await check_books(sqlite)


# ---------------------------------------------------------------------- two libraries


def look(path: Path) -> int:
    """As a user would: with the standard library's SQLite, in the same process."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT count(*) FROM letters").fetchone()[0]


@pytest.mark.skipif(locks._SET_LOCK is None, reason="this system has no locks of open files")
async def test_a_look_with_another_library_leaves_the_wal_in_its_place(sqlite, path):
    await put(sqlite, "a")
    before = [each.stat().st_ino for each in beside(path, "-wal", "-shm")]
    assert look(path) == 1
    await put(sqlite, "b")
    assert [each.stat().st_ino for each in beside(path, "-wal", "-shm")] == before
    assert look(path) == 2


async def test_where_the_system_cannot_prevent_it_a_look_with_another_library_is_noticed(path, clock, monkeypatch):
    monkeypatch.setattr(locks, "_SET_LOCK", None)
    store = SqliteStore(path, clock=clock)
    await store.open()
    acknowledged = set()
    for number in range(9):
        if number % 4 == 2:
            look(path)
            with pytest.raises(StoreUnavailable, match="second SQLite library"):
                await put(store, f"refused {number}")
        await put(store, f"{number}")
        acknowledged.add(letter_id(f"{number}"))
    assert acknowledged <= await kept(store)
    crashed = path.with_name("crashed.db")  # what another process would find now
    for ending in ("", "-wal"):
        shutil.copy(f"{path}{ending}", f"{crashed}{ending}")
    await store.close()
    after = SqliteStore(crashed, clock=clock)
    await after.open()
    assert acknowledged <= await kept(after)
    await check_books(after)
    await after.close()


_PUTS = """
import asyncio, sys
from redrive.core.letter import Draft
from redrive.errors import StoreUnavailable
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.file import database

database._PATIENCE = 0.2

async def main(path, name):
    store = SqliteStore(path)
    await store.open()
    await store.put([Draft(id=name, queue="work", kind="a", payload=b"{}")])
    await store.close()

try:
    asyncio.run(main(*sys.argv[1:]))
except StoreUnavailable as error:
    sys.exit(str(error))
"""


def put_elsewhere(path: Path, name: str) -> str:
    """Let another process put a letter; return what it was told, if not yes."""
    command = [sys.executable, "-c", _PUTS, os.fspath(path), name]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


async def test_a_wal_that_was_lost_never_overwrites_what_others_have_written_since(path, clock, monkeypatch):
    monkeypatch.setattr(locks, "_SET_LOCK", None)
    store = SqliteStore(path, clock=clock)
    await store.open()
    await put(store, "a")
    inside, gate = threading.Event(), threading.Event()

    def put_slowly(transaction):
        putting.put(transaction, [draft("b")])
        transaction.insert_arrivals()
        inside.set()
        gate.wait(60)

    writing = store._calls.writer.submit(put_slowly)
    assert await asyncio.to_thread(inside.wait, 60)
    look(path)
    assert await asyncio.to_thread(put_elsewhere, path, "elsewhere") == ""
    gate.set()
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        await writing
    await put(store, "c")
    assert await kept(store) == {letter_id("a"), "elsewhere", letter_id("c")}
    await check_books(store)
    await store.close()


_SEES = """
import fcntl, struct, sys
for name, start, length in ((sys.argv[1], 0x40000002, 510), (sys.argv[1] + "-shm", 128, 1)):
    with open(name, "r+b") as file:
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, start, length, 0)
        assert struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] == fcntl.F_RDLCK, name
"""


@pytest.mark.skipif(locks._SET_LOCK is None, reason="this system has no locks of open files")
async def test_after_a_look_with_another_library_other_processes_still_see_the_file_in_use(sqlite, path):
    await put(sqlite, "a")
    look(path)
    command = [sys.executable, "-c", _SEES, os.fspath(path)]
    assert (await asyncio.to_thread(subprocess.run, command, check=False)).returncode == 0


@pytest.mark.skipif(locks._SET_LOCK is None, reason="this system has no locks of open files")
async def test_a_look_in_the_middle_of_a_write_lets_no_other_process_write(sqlite, path):
    await put(sqlite, "a")
    inside, gate = threading.Event(), threading.Event()
    writing = sqlite._calls.writer.submit(lambda _turn: (inside.set(), gate.wait(60)))
    assert await asyncio.to_thread(inside.wait, 60)
    look(path)  # SQLite's own lock is gone
    told = await asyncio.to_thread(put_elsewhere, path, "b")
    assert "another process kept it locked" in told
    gate.set()
    await writing
    assert await asyncio.to_thread(put_elsewhere, path, "b") == ""


# ---------------------------------------------------------------------- closing, and children


async def test_the_last_who_closes_leaves_one_file(path, clock):
    first, second = SqliteStore(path, clock=clock), SqliteStore(path, clock=clock)
    await first.open()
    await second.open()
    await put(first, "a")
    await first.close()
    assert path.with_name("redrive.db-wal").exists()
    await put(second, "b")
    await second.close()
    assert [each.name for each in path.parent.iterdir() if each.name.startswith(path.name)] == ["redrive.db"]


async def test_who_closes_beside_a_long_read_waits_for_nobody(path, clock, monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(database, "ask_again", lambda times: bool(asked.append(times)))
    store = SqliteStore(path, clock=clock)
    await store.open()
    await put(store, "a")
    with contextlib.closing(apsw.Connection(str(path))) as reader:
        reader.execute("BEGIN; SELECT count(*) FROM letters").fetchall()
        await put(store, "b")
        await store.close()
    assert asked == []


_FORKS = """
import asyncio, os, sys
from redrive import failpoints
from redrive.core.letter import Draft
from redrive.stores.sqlite import SqliteStore

async def main(path):
    store = SqliteStore(path)
    await store.open()
    child = os.fork()
    if child == 0:
        sys.stdin.read()  # until the test ends
        os._exit(0)
    failpoints.ACTIVE.update(failpoints.parse("sqlite.after_begin=kill"))
    await store.put([Draft(id="a", queue="work", kind="a", payload=b"{}")])

asyncio.run(main(sys.argv[1]))
"""


async def _put_one(store: SqliteStore) -> None:
    await store.open()
    await store.put([draft("b")])
    await store.close()


def test_a_child_that_outlives_a_killed_parent_holds_nobody_up(path, clock):
    command = [sys.executable, "-c", _FORKS, os.fspath(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as parent:
        assert parent.wait(60) == -9
        asyncio.run(_put_one(SqliteStore(path, clock=clock)))  # the parent died while it was writing
        assert [each.name for each in path.parent.iterdir()] == ["redrive.db"]
