"""The file: durable settings, schema, and who may open it."""

from __future__ import annotations

import asyncio

import apsw
import pytest
from tests.stores.samples import DELIVERED, claim, names, put

from redrive.errors import SchemaMismatch, StoreClosed, StoreDamaged, StoreUnavailable
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.file import database
from redrive.stores.sqlite.file.database import File, migrations


def test_a_commit_survives_a_power_cut_by_the_writers_settings(path):
    connection = File(path).writer()
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("synchronous") == 2  # FULL
    connection.close()


async def test_a_reader_cannot_write(sqlite, path):
    reader = File(path).reader()
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("DELETE FROM letters")
    reader.close()


async def test_letters_survive_closing_and_opening(sqlite, path, clock):
    await put(sqlite, "a", "b")
    await sqlite.close()
    again = SqliteStore(path, clock=clock)
    await again.open()
    assert names(await claim(again)) == ["a", "b"]
    await again.close()


async def test_stores_that_open_a_new_file_at_the_same_moment_agree_on_its_schema(path, clock):
    stores = [SqliteStore(path, clock=clock) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    await put(stores[0], "a")
    assert names(await claim(stores[3])) == ["a"]
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_newer_schema_is_refused_with_a_way_out(sqlite, sql, path):
    newest = migrations()[-1][0]
    sql(f"PRAGMA user_version = {newest + 1}")
    with pytest.raises(SchemaMismatch, match=f"has schema {newest + 1}.*upgrade redrive"):
        await SqliteStore(path).open()


async def test_workers_keep_working_while_a_later_release_adds_to_the_schema(sqlite, sql):
    await put(sqlite, "a", "b")
    [first, second] = await claim(sqlite)
    sql("BEGIN IMMEDIATE")
    sql("ALTER TABLE letters ADD COLUMN of_a_later_release TEXT")
    sql("CREATE TABLE of_a_later_release (one INTEGER)")
    sql(f"PRAGMA user_version = {migrations()[-1][0] + 1}")
    sql("COMMIT")
    assert await sqlite.settle([(first, DELIVERED), (second, DELIVERED)]) == (True, True)
    await put(sqlite, "c")
    assert names(await claim(sqlite)) == ["c"]


async def test_a_database_of_another_application_is_refused_and_left_alone(path, sql):
    sql("CREATE TABLE theirs (one INTEGER)")
    with pytest.raises(StoreDamaged, match="another application"):
        await SqliteStore(path).open()
    assert [name for (name,) in sql("SELECT name FROM sqlite_schema")] == ["theirs"]


async def test_a_file_that_is_no_database_is_refused(path):
    path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(StoreDamaged, match="not a sound SQLite database"):
        await SqliteStore(path).open()


async def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(StoreUnavailable, match="check that its folder exists"):
        await SqliteStore(tmp_path / "nowhere" / "redrive.db").open()


async def test_a_closed_store_says_so(sqlite):
    await sqlite.close()
    with pytest.raises(StoreClosed, match="is not open"):
        await put(sqlite, "a")


async def test_a_lease_of_an_earlier_boot_has_ended(sqlite, sql, path, clock):
    await put(sqlite, "a")
    await claim(sqlite)
    assert await sqlite.expired(10) == []
    await sqlite.close()
    sql("UPDATE boots SET boot_id = 'an earlier boot'")
    again = SqliteStore(path, clock=clock)
    await again.open()
    assert names(await again.expired(10)) == ["a"]
    await again.close()


async def test_a_lease_made_on_another_host_has_ended_when_the_file_comes_back(sqlite, sql, path, clock):
    await sqlite.close()
    sql("INSERT INTO boots VALUES (99, 'another host')")
    elsewhere = SqliteStore(path, clock=clock)
    sql("DELETE FROM boots WHERE boot_id <> 'another host'")
    await elsewhere.open()
    await put(elsewhere, "a")
    await claim(elsewhere)
    await elsewhere.close()
    sql("INSERT INTO boots VALUES (1000, 'a third host')")
    back = SqliteStore(path, clock=clock)
    await back.open()
    assert names(await back.expired(10)) == ["a"]
    await back.close()


async def test_a_row_that_somebody_spoilt_does_not_stop_its_neighbours(sqlite, sql):
    await put(sqlite, "a", "b")
    sql("UPDATE letters SET extras = x'6e6f' WHERE seq = 1")
    assert names(await claim(sqlite)) == ["a", "b"]


def test_a_new_file_that_another_process_is_just_making_is_waited_for(path, monkeypatch):
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE; CREATE TABLE made_just_now (x)")

    def ask_again(_asked: int) -> bool:
        if other.in_transaction:
            other.execute("COMMIT")
        return True

    monkeypatch.setattr(database, "ask_again", ask_again)
    connection = File(path).writer()
    assert connection.pragma("journal_mode") == "wal"
    connection.close()
    other.close()
