"""An application, and driving it on every embedded store by a clock that only the test moves."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from redrive import Redrive
from redrive.stores.contract import books
from redrive.stores.memory import MemoryStore
from redrive.stores.sqlite import SqliteStore
from redrive.testing import Drive, FakeClock, drive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from redrive.stores.contract import Store

    Driven = Callable[[Redrive], AbstractAsyncContextManager[Drive]]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def app() -> Redrive:
    return Redrive("memory://")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: here it is not the disk that is tested, and disks are slow."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder in it is ours alone
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, folder, clock) -> Store:
    """A store that nobody opened yet."""
    return MemoryStore(clock) if request.param == "memory" else SqliteStore(folder / "redrive.db", clock=clock)


@pytest.fixture
def driven(store, clock) -> Driven:
    """Drive an application on each store."""
    return driving_on(store, clock)


@pytest.fixture
def in_memory(clock) -> Driven:
    """Drive an application on the memory store alone: for what no store has a part in."""
    return driving_on(MemoryStore(clock), clock)


def driving_on(store: Store, clock: FakeClock) -> Driven:
    """Return `drive` on *store*, with a check of the books in the end."""

    @asynccontextmanager
    async def driving(app: Redrive) -> AsyncIterator[Drive]:
        async with drive(app, clock=clock, store=store) as test:
            yield test
            kept = books(await store.tallies())
            assert kept["enqueued"] == sum(kept.values()) - kept["enqueued"]

    return driving
