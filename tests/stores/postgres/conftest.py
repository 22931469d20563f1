"""A PostgreSQL store on the server's own clock, and a plain connection beside it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from tests.stores.conftest import server_url
from tests.stores.samples import check_books

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(autouse=True)
def patient(monkeypatch) -> None:
    """How soon a call gives up is asked by few tests, which say so; the others may meet a machine that stalls."""
    if find_spec("asyncpg") is not None:
        monkeypatch.setattr("redrive.stores.postgres.server.connections.PATIENCE", 120.0)


@pytest.fixture
def url() -> str:
    return server_url()


@pytest.fixture
async def store(url, tmp_path) -> AsyncIterator:
    from tests.stores.fresh import FreshStore  # noqa: PLC0415 - only where there is a driver

    opened = FreshStore(url, tmp_path, None)
    await opened.open()
    yield opened
    await check_books(opened)
    await opened.close()


@pytest.fixture
async def connection(url, store) -> AsyncIterator:
    import asyncpg  # noqa: PLC0415 - only where there is a driver

    opened = await asyncpg.connect(url)
    yield opened
    await opened.close()
