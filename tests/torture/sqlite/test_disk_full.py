"""A full disk: callers hear of it, nothing is lost, work goes on by itself when there is room."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.torture import checker, workload
from tests.torture.history import History
from tests.torture.runs import iofault

from redrive.errors import StoreUnavailable
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.file import writer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.torture

MEGABYTES = 3


class Disk:
    """A small file system of its own, and a file that takes all room that is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        file = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in (65_536, 4_096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        os.write(file, b"\0" * size)
        finally:
            os.close(file)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here (it takes root): {mounted.stderr.decode().strip()}")
    yield Disk(folder)
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(autouse=True)
def _checkpoints_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 20)


def test_the_small_disk_is_really_full(disk: Disk):
    disk.fill()
    with pytest.raises(OSError, match="No space left") as caught:
        (disk.folder / "more").write_bytes(b"\0" * 8_192)
    assert caught.value.errno == errno.ENOSPC


async def test_enqueueing_into_a_full_disk_is_refused_and_keeps_what_was_accepted(disk: Disk):
    store = SqliteStore(disk.folder / "redrive.db")
    await store.open()
    told = iofault.Told(store)
    while not told.errors:
        await told.put()
    assert all(isinstance(error, StoreUnavailable) for error in told.errors)
    assert len(told.tokens) > 30
    refused = len(told.errors)
    for _ in range(20):
        await told.put()
    assert len(told.errors) > refused
    await store.close()
    rows = checker.read_rows(disk.folder / "redrive.db")
    assert rows.keys() == told.tokens.keys()


@pytest.mark.parametrize("scenario", ["put", "claim_and_settle", "fail", "replay"])
async def test_every_call_survives_a_full_disk_and_goes_on_when_there_is_room(disk: Disk, scenario: str):
    await iofault.prepare(disk.folder)
    store = SqliteStore(disk.folder / "redrive.db")
    await store.open()
    told = iofault.Told(store)
    told._count = 100
    for _ in range(10):
        disk.fill()
        await told.put(8)  # takes whatever room the WAL still had
        await iofault.SCENARIOS[scenario](told)
        disk.free()
        before = len(told.errors)
        await told.put(1)
        await told.settle(await told.claim(), iofault.DELIVERED)
        assert len(told.errors) == before, "there is room, and the store does not go on"
    assert told.errors
    assert all(isinstance(error, StoreUnavailable) for error in told.errors)
    await store.close()
    rows = checker.read_rows(disk.folder / "redrive.db")
    assert all(rows[letter_id].token >= token for letter_id, token in told.tokens.items())
    assert not checker.books_problems(disk.folder / "redrive.db")


async def test_claims_made_before_the_disk_was_full_settle_when_there_is_room(disk: Disk):
    await iofault.prepare(disk.folder)
    store = SqliteStore(disk.folder / "redrive.db")
    await store.open()
    told = iofault.Told(store)
    told._count = 100
    claims = await told.claim()
    disk.fill()
    while not told.errors:
        await told.put(8)
    with contextlib.suppress(StoreUnavailable):
        await store.settle([(claim, iofault.FAILED) for claim in claims])
        pytest.fail("the disk was full, and a settlement was accepted")
    disk.free()
    assert await store.settle([(claim, iofault.DELIVERED) for claim in claims]) == (True,) * len(claims)
    await store.close()


async def test_a_worker_lives_through_a_disk_that_is_full_now_and_then(disk: Disk, tmp_path: Path):
    workload.quiet()
    app, _ = workload.build(disk.folder, lease=2.0, history=tmp_path / "history")
    await app.open()
    working = asyncio.ensure_future(app.run(signals=False))
    refused = 0
    for _ in range(8):
        for full in (False, True):
            (disk.fill if full else disk.free)()
            for _ in range(12):
                try:
                    await app.enqueue_many([app.draft(kind, {"pad": "x" * 900}) for kind in ("ok", "flaky", "bad")])
                except StoreUnavailable:
                    refused += 1
                await asyncio.sleep(0.005)
    disk.free()
    assert refused
    assert not working.done(), "the worker did not survive"
    app.stop()
    await working
    await app.run(until_idle=True, signals=False)
    await app.close()
    verdict = checker.judge(History(tmp_path / "history"), disk.folder / "redrive.db", floor=100)
    assert verdict.ok, verdict
