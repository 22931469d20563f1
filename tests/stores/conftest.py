"""One fixture, every store: a test that asks for `store` runs on all of them, and the books are checked after it."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from tests.servers.pgbouncer import shared as shared_pooler
from tests.servers.postgres import Missing, shared
from tests.stores.samples import check_books

from redrive.stores.clock import ManualClock
from redrive.stores.memory import MemoryStore
from redrive.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from redrive.stores.contract import Store

# `postgres` is PostgreSQL 18; `pgbouncer` is a pooler in front of PostgreSQL 16, so that each test of the contract
# meets both versions, with and without a pooler.
NAMES = ["memory", "sqlite", "postgres", "pgbouncer"]
# A pooler changes how connections and transactions behave, and nothing about what a query or a column means: tests of
# many of them leave it out.
UNPOOLED = ["memory", "sqlite", "postgres", "postgres16"]
ON_UNPOOLED_STORES = pytest.mark.parametrize("store", UNPOOLED, indirect=True)


def make_store(name: str, folder: Path, clock: ManualClock) -> Store:
    """Return a store that is not open yet; the same *folder* gives the same letters again."""
    if name == "memory":
        return MemoryStore(clock)
    if name == "sqlite":
        return SqliteStore(folder / "redrive.db", clock=clock)
    from tests.stores.fresh import FreshStore  # noqa: PLC0415 - only where there is a driver

    if name == "pgbouncer":
        return FreshStore(pooler_url(), folder, clock, pooled=True)
    return FreshStore(server_url(16 if name == "postgres16" else 18), folder, clock)


def server_url(version: int = 18) -> str:
    """Return where the shared server is; a missing one fails in CI and skips elsewhere."""
    give_up = pytest.fail if os.environ.get("CI") else pytest.skip
    if find_spec("asyncpg") is None:
        give_up("there is no driver: pip install 'redrive[postgres]'")
    try:
        return shared(version).url
    except Missing as missing:
        give_up(str(missing))


def pooler_url() -> str:
    """Return where the shared pooler is; a missing one fails in CI and skips elsewhere."""
    server_url(16)
    try:
        return shared_pooler(16).url
    except Missing as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))


@asynccontextmanager
async def open_store(name: str, folder: Path, clock: ManualClock) -> AsyncIterator[Store]:
    """Open a store, and close it whatever happens."""
    store = make_store(name, folder, clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=NAMES)
async def store(request, tmp_path, clock) -> AsyncIterator[Store]:
    async with open_store(request.param, tmp_path, clock) as opened:
        yield opened
        await check_books(opened)


@pytest.fixture(params=NAMES)
def closed_store(request, tmp_path, clock) -> Store:
    """A store that nobody opened yet."""
    return make_store(request.param, tmp_path, clock)
