"""I/O errors at the n-th request: callers hear of them, nothing told is lost, the store goes on by itself."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest
from tests.torture import checker, workload
from tests.torture.runs import iofault

from redrive import RetryPolicy
from redrive.app import Redrive
from redrive.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torture


@pytest.mark.parametrize("stays", [False, True], ids=["once", "until repaired"])
@pytest.mark.parametrize("fault", list(iofault.FAULTS))
@pytest.mark.parametrize("scenario", list(iofault.SCENARIOS))
async def test_an_io_error_at_any_request_loses_nothing(quick_folder: Path, scenario: str, fault: str, stays: bool):
    (quick_folder / "template").mkdir()
    await iofault.prepare(quick_folder / "template")
    refused = 0
    for at in itertools.count(1):
        ending = await iofault.run(quick_folder / "template", quick_folder / "run", scenario, fault, at, stays=stays)
        assert not ending.problems, f"{scenario}, {fault} at request {at}, stays={stays}: {ending.problems}"
        refused += ending.refused
        if not ending.met:
            break
    print(scenario, fault, at, refused)
    if (scenario, fault) != ("look", "ENOSPC"):  # looking writes nothing
        assert refused, "no caller ever heard of the fault"


@pytest.mark.parametrize("fault", list(iofault.FAULTS))
@pytest.mark.parametrize("breaker", [None, "a dependency"])
async def test_a_worker_lives_through_a_disk_that_fails_now_and_then(
    quick_folder: Path, fault: str, breaker: str | None
):
    workload.quiet()
    disk = iofault.FaultyDisk(fault, 1, stays=True)
    store = SqliteStore(quick_folder / "redrive.db", vfs=disk.name)
    app = Redrive(store=store, lease_seconds=1, sweep_seconds=0.1, poll_seconds=0.05)

    async def ship(number: int) -> None:
        await asyncio.sleep(0.005)
        if number % 10 == 0:
            raise ConnectionError("away")

    policy = RetryPolicy.exponential(first=0.01, cap=0.05, max_attempts=2)
    app.add_handler("ship", ship, breaker=breaker, policy=policy)
    async with app:
        await app.enqueue_many([app.draft("ship", number) for number in range(300)])
        working = asyncio.ensure_future(app.run(signals=False))
        for _ in range(6):
            await asyncio.sleep(0.1)
            disk.armed, disk.met, disk.requests = True, False, 0
            await asyncio.sleep(0.1)
            disk.armed = False
            assert not working.done(), f"the worker ended: {working.exception()!r}"
        app.stop()
        await working
        await app.run(until_idle=True, signals=False)
    rows = checker.read_rows(quick_folder / "redrive.db").values()
    assert sum(row.status == "delivered" for row in rows) == 270
    assert sum(row.status == "failed" for row in rows) == 30
    assert not checker.books_problems(quick_folder / "redrive.db")
