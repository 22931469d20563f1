"""Workers that die, are stopped or end, each a real process, on one database file: who has their letters, and when."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.app import doomed
from tests.engine.starting import soon
from tests.stores.samples import WANT, draft

from redrive import Redrive, Status
from redrive.errors import StoreUnavailable
from redrive.stores.clock import SystemStoreClock
from redrive.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

NEVER = 3_600.0  # seconds
OUR_WAY = {"lease_seconds": doomed.LEASE, "poll_seconds": 0.05}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no flock")


class Later(SystemStoreClock):
    """The machine's clock, once the doomed worker's lease is over."""

    def lease_ms(self) -> int:
        return super().lease_ms() + round(1_000 * (doomed.LEASE + 60))


@pytest.fixture
def database(folder) -> Path:
    return folder / "redrive.db"


@asynccontextmanager
async def doomed_worker(database: Path, what: str = "hangs") -> AsyncIterator[Process]:
    """Start a worker in a process of its own, and go on once it runs a letter; nothing of it is left afterwards."""
    app = Redrive(f"sqlite:///{database}")
    await app.enqueue("order.created", {})
    await app.close()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.app.doomed",
        str(database),
        what,
        stdout=asyncio.subprocess.PIPE,
        process_group=0,
        cwd=Path(__file__).parents[4],
    )
    try:
        assert process.stdout is not None
        assert await soon(process.stdout.readline()) == b"began\n"
        yield process
    finally:
        with suppress(ProcessLookupError):  # all of it is gone already
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def kill(process: Process) -> None:
    process.kill()
    await process.wait()


def second(database: Path, **settings: float) -> tuple[Redrive, asyncio.Event]:
    """Return the application on the same file, and when it has run the letter."""
    app = Redrive(f"sqlite:///{database}", **{**OUR_WAY, **settings})
    ran = asyncio.Event()

    @app.handler("order.created")
    async def ship(order: dict):
        ran.set()

    return app, ran


async def run_until(app: Redrive, ran: asyncio.Event) -> None:
    task = asyncio.ensure_future(app.run(signals=False))
    await soon(ran.wait())
    app.stop()
    await soon(task)


def beside(database: Path) -> list[str]:
    """Return the workers' files beside the database."""
    return sorted(path.name for path in database.parent.iterdir() if "-worker-" in path.name)


async def test_a_killed_workers_letter_runs_elsewhere_within_a_sweep(database):
    app, ran = second(database, sweep_seconds=0.05)
    async with doomed_worker(database) as process:
        task = asyncio.ensure_future(app.run(signals=False))
        await app.open()
        for _ in range(5):
            assert await app.store.expired(10) == []
        await kill(process)
        await soon(ran.wait())
        app.stop()
        await soon(task)
    [letter] = (await app.desk.ls()).letters
    await app.close()
    assert (letter.status, letter.losses) == (Status.DELIVERED, 1)


async def test_a_process_that_starts_after_a_crash_takes_the_letter_at_once(database):
    app, ran = second(database, sweep_seconds=NEVER)
    async with doomed_worker(database) as process:
        await kill(process)
        await run_until(app, ran)
        await app.close()


async def beside_stopped(process: Process, database: Path) -> SqliteStore:
    """Stop the worker, but not while it has the turn to write, which would keep others from opening the file."""
    store = SqliteStore(database)
    for _ in range(10):
        os.kill(process.pid, signal.SIGSTOP)
        with suppress(StoreUnavailable):
            await store.open()
            return store
        os.kill(process.pid, signal.SIGCONT)
    raise AssertionError("it was stopped in its turn each time")


async def test_a_stopped_worker_keeps_its_letter_until_its_lease_ends(database):
    async with doomed_worker(database) as process:
        now, later = await beside_stopped(process, database), SqliteStore(database, clock=Later())
        await later.open()
        assert await now.expired(10) == []
        assert [beat.alive for beat in await now.workers()] == [True]
        assert len(await later.expired(10)) == 1
        await now.close()
        await later.close()


async def test_a_child_that_outlives_its_worker_does_not_pass_for_it(database):
    app, ran = second(database, sweep_seconds=NEVER)
    async with doomed_worker(database, "forks") as process:
        await kill(process)
        await run_until(app, ran)
        await app.close()


async def test_a_killed_worker_is_shown_gone_and_leaves_no_file_behind(database):
    app, ran = second(database, sweep_seconds=0.05)
    async with doomed_worker(database) as process:
        assert len(beside(database)) == 1
        await kill(process)
        await app.open()
        [beat] = await app.store.workers()
        await run_until(app, ran)
        await app.store.retain(app.settings.retention)
        [still] = await app.store.workers()
        await app.close()
    assert (beat.alive, beat.in_flight) == (False, 1)
    assert (still.name, still.alive, still.in_flight) == (beat.name, False, 0)
    assert beside(database) == []


async def test_a_worker_whose_file_is_missing_is_judged_by_its_lease(database):
    async with doomed_worker(database) as process:
        for name in beside(database):
            (database.parent / name).unlink()
        await kill(process)
        now, later = SqliteStore(database), SqliteStore(database, clock=Later())
        await now.open()
        await later.open()
        assert await now.expired(10) == []
        assert len(await later.expired(10)) == 1
        await now.close()
        await later.close()


async def test_a_worker_that_ends_in_order_signs_off_and_leaves_no_file_behind(database):
    app, ran = second(database)
    await app.enqueue("order.created", {})
    task = asyncio.ensure_future(app.run(signals=False))
    await soon(ran.wait())
    [beat] = await app.store.workers()
    files = beside(database)
    app.stop()
    await soon(task)
    left = await app.store.workers()
    await app.close()
    assert beat.alive
    assert len(files) == 1
    assert (left, beside(database)) == ([], [])


async def test_two_stores_of_one_process_do_not_take_each_other_for_dead(database):
    app, _ = second(database)
    began = asyncio.Event()

    @app.handler("order.hangs")
    async def hang(order: dict):
        began.set()
        await asyncio.Event().wait()

    await app.enqueue("order.hangs", {})
    task = asyncio.ensure_future(app.run(signals=False))
    await soon(began.wait())
    for _ in range(2):  # one that closes must not lift the other's lock
        other = SqliteStore(database)
        await other.open()
        assert await other.expired(10) == []
        assert [beat.alive for beat in await other.workers()] == [True]
        await other.close()
    app.stop()
    app.stop()
    await soon(task)
    await app.close()


async def test_a_worker_is_known_to_be_dead_through_a_link_to_the_file(database):
    link = database.parent / "elsewhere.db"
    async with doomed_worker(database) as process:
        link.symlink_to(database)
        store = SqliteStore(link)
        await store.open()
        assert await store.expired(10) == []
        await kill(process)
        assert len(await store.expired(10)) == 1
        await store.close()


async def test_letters_of_a_worker_that_died_before_its_first_heartbeat_need_no_lease_to_end(database):
    dying, other = SqliteStore(database), SqliteStore(database)
    await dying.open()
    await dying.put([draft("1")])
    assert len(await dying.claim([WANT], lease=NEVER, worker="doomed")) == 1
    await other.open()
    assert await other.expired(10) == []
    await dying.close()  # as the kernel does for a process that dies: the lock is gone, and the worker never signed off
    assert len(await other.expired(10)) == 1
    await other.close()
